#include "hccl/join/root_info.h"

#include <algorithm>
#include <cstring>

#include "hccl/base/auth.h"

namespace hccl::join {
namespace {

constexpr std::uint64_t kMagic = 0x4c43434855504332;  // this layout, version 2
constexpr std::size_t kChecksumAt = RootInfo::kUsedBytes - sizeof(Key);

}  // namespace

void RootInfo::encode(std::span<char, kBytes> out) const {
  std::fill_n(out.begin(), kUsedBytes, '\0');
  // HCCL's own clients read an address from the first bytes.
  std::copy_n(address.data(), std::min(address.size(), kTextBytes - 1), out.data());
  const std::string body =
      ByteWriter().put(kMagic).put(id).put(secret).put(port).put(ports).put_text(address).take();
  std::copy_n(body.data(), std::min(body.size(), kChecksumAt - kTextBytes),
              out.data() + kTextBytes);
  const Key checksum = digest({out.data(), kChecksumAt});
  std::memcpy(out.data() + kChecksumAt, checksum.data(), checksum.size());
}

Result<RootInfo> RootInfo::decode(std::span<const char, kBytes> bytes) {
  const Key checksum = digest({bytes.data(), kChecksumAt});
  ByteReader reader({bytes.data() + kTextBytes, kChecksumAt - kTextBytes});
  RootInfo info;
  const auto magic = reader.get<std::uint64_t>();
  if (magic != kMagic ||
      std::memcmp(bytes.data() + kChecksumAt, checksum.data(), checksum.size()) != 0) {
    return Status(
        Code::kPara,
        "rootInfo was not made by HcclGetRootInfo of this version, or was damaged on the way");
  }
  info.id = reader.get<Uuid>();
  info.secret = reader.get<Key>();
  info.port = reader.get<std::uint16_t>();
  info.ports = reader.get<std::uint16_t>();
  info.address = reader.get_text(kTextBytes);
  if (!reader.ok() || info.ports == 0) return Status(Code::kPara, "rootInfo is damaged");
  return info;
}

std::string RootInfo::name() const { return short_name(view(id)); }

}  // namespace hccl::join
