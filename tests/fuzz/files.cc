// Files that another process wrote: root info in its 4,108 bytes, alone and in the file for the
// ranks of a host; a job's secret; a rank table. The first byte chooses one of them. If its highest
// bit is set, the checksum of the root info is corrected.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "hccl/base/auth.h"
#include "hccl/base/fd.h"
#include "hccl/base/user_folder.h"
#include "hccl/join/host_root.h"
#include "hccl/join/rank_table.h"
#include "hccl/join/root_info.h"
#include "hccl/join/secret.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hccl;
using Block = std::array<char, join::RootInfo::kBytes>;

/// A folder of this process's own.
struct Folder {
  Folder() {
    char name[] = "/tmp/hccl-fuzz-XXXXXX";
    PROMISE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

void write(const std::string& path, std::string_view bytes) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  PROMISE(::write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

void check(const Result<join::RootInfo>& info) {
  if (!info.ok()) return;
  PROMISE(info->ports != 0 && info->address.size() <= join::RootInfo::kTextBytes);
  Block again;
  info->encode(again);
  const auto same = join::RootInfo::decode(again);
  PROMISE(same.ok() && same->address == info->address && same->secret == info->secret);
}

Block block_of(std::string_view bytes, bool fits) {
  Block block{};
  bytes.copy(reinterpret_cast<char*>(block.data()), block.size());
  if (fits) {
    const std::size_t at = join::RootInfo::kUsedBytes - sizeof(Key);
    const Key checksum = digest({block.data(), at});
    std::memcpy(block.data() + at, checksum.data(), checksum.size());
  }
  return block;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  fuzz::Input input(data, size);
  const std::uint8_t what = input.byte();
  const std::string_view bytes = input.rest();
  switch (what & 3) {
    case 0: {
      const Block block = block_of(bytes, what & 0x80);
      check(join::RootInfo::decode(block));
      break;
    }
    case 1: {
      const auto now = Deadline::after(std::chrono::nanoseconds(0));
      const auto root =
          join::HostRoot::create({folder.path}, "fuzz", Deadline::never(),
                                 [](const auto& make) { return std::make_shared<Fd>(make()); });
      PROMISE(root.ok());
      const Block block = block_of(bytes, what & 0x80);
      const std::size_t length = what & 0x40 ? bytes.size() : block.size();
      for (const auto& entry :
           std::filesystem::directory_iterator(user_folder({folder.path}).value().path)) {
        write(entry.path(), std::string_view(block.data(), std::min(length, block.size())));
      }
      check(join::find_host_root({folder.path}, "fuzz", now));
      break;
    }
    case 2: {
      const std::string path = folder.path + "/secret";
      write(path, bytes);
      const auto secret = join::read_secret_file(path);
      const std::string_view text = bytes.substr(0, bytes.find_last_not_of("\r\n") + 1);
      const bool fits = bytes.size() <= 64 << 10 && text.size() >= 16 &&
                        text.find_first_not_of(text.front()) != std::string_view::npos;
      PROMISE(secret.ok() == fits && (!fits || secret.value() == digest(bytes)));
      break;
    }
    default: {
      const std::string path = folder.path + "/table.json";
      write(path, bytes);
      const auto now = Deadline::after(std::chrono::nanoseconds(0));
      PROMISE(!join::read_rank_table(path, now).ok() || join::parse_rank_table(bytes).ok());
    }
  }
  return 0;
}
