#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "hccl/base/error_text.h"
#include "hccl/base/memory_limit.h"
#include "hccl/base/pages.h"
#include "hccl/base/thread.h"

namespace hccl::transport::shm {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMagic = 0x314d48534c434348;  // "HCCLSHM1"
constexpr std::uint64_t kPopulated = std::uint64_t{32} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct Header {
  std::uint64_t magic = kMagic;
  std::uint64_t ranks = 0;
  std::uint64_t total = 0;
};

Status failure(const char* what) {
  const Code code = errno == ENOMEM ? Code::kOom : Code::kSyscall;
  return Status(code, std::string("shared memory: ") + what + ": " + error_text(errno));
}

Result<std::byte*> map(int memfd, const Layout& layout, bool touch_rings) {
  const std::uint64_t size = layout.total;
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
  if (base == MAP_FAILED) return failure("mmap");
  ::madvise(base, size, MADV_DONTFORK);  // a forked child is no rank of this mesh
  // Touches pages now, so that the first messages cause no page faults. With many ranks the pages
  // stay untouched, because most rings may never be used. The user of the area touches its pages.
  if (size <= kPopulated) fault_in(base, touch_rings ? layout.area_at : layout.rings_at);
  return static_cast<std::byte*>(base);
}

}  // namespace

Layout Layout::of(int ranks, std::size_t area_bytes) {
  const auto n = static_cast<std::uint64_t>(ranks);
  Layout layout;
  // With two ranks a ring has 2 MiB, about twice the second-level cache: in a much smaller ring,
  // the reader's cache still holds each line that the writer writes. With many ranks the rings of a
  // rank together have 4 MiB, so that the whole segment stays small.
  layout.ring_bytes = std::clamp<std::uint64_t>(std::bit_floor((std::uint64_t{4} << 20) / n),
                                                std::uint64_t{16} << 10, std::uint64_t{2} << 20);
  layout.states_at = kLine;
  layout.controls_at = layout.states_at + n * sizeof(RankState);
  layout.rings_at = (layout.controls_at + n * n * sizeof(RingControl) + kPage - 1) / kPage * kPage;
  layout.area_at = layout.rings_at + n * n * layout.ring_bytes;
  layout.total = layout.area_at + (area_bytes + kPage - 1) / kPage * kPage;
  return layout;
}

Result<std::shared_ptr<Segment>> Segment::create(int ranks, std::size_t area_bytes,
                                                 bool touch_rings) {
  const Layout layout = Layout::of(ranks, area_bytes);
  HCCL_RETURN_IF_ERROR(
      room_for(layout.total <= kPopulated ? layout.total : area_bytes, "shared memory"));
  Fd memfd(::memfd_create("hccl-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.valid()) return failure("memfd_create");
  {
    const FilesWithinLimit within;
    if (::ftruncate(memfd.get(), static_cast<off_t>(layout.total)) != 0)
      return failure("ftruncate");
  }
  if (::fcntl(memfd.get(), F_ADD_SEALS, kSeals) != 0) return failure("sealing");
  HCCL_ASSIGN_OR_RETURN(std::byte * base, map(memfd.get(), layout, touch_rings));
  std::shared_ptr<Segment> segment(new Segment(std::move(memfd), ranks, layout, base));
  new (base) Header{kMagic, static_cast<std::uint64_t>(ranks), layout.total};
  for (int r = 0; r < ranks; ++r) new (&segment->state(r)) RankState();
  // The kernel's pages are all zeroes, which is the first state of the controls.
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::attach(Fd memfd, int ranks, std::size_t area_bytes,
                                                 bool touch_rings) {
  const Layout layout = Layout::of(ranks, area_bytes);
  struct stat about{};
  if (::fstat(memfd.get(), &about) != 0) return failure("fstat");
  if (static_cast<std::uint64_t>(about.st_size) != layout.total) {
    return Status(Code::kTcpConnect, "shared memory: the segment has " +
                                         std::to_string(about.st_size) + " bytes, not " +
                                         std::to_string(layout.total));
  }
  // Without the seals another process could shrink the file, and every access would raise SIGBUS.
  const int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Status(Code::kTcpConnect, "shared memory: the segment is not sealed");
  }
  HCCL_ASSIGN_OR_RETURN(std::byte * base, map(memfd.get(), layout, touch_rings));
  std::shared_ptr<Segment> segment(new Segment(std::move(memfd), ranks, layout, base));
  Header header;
  std::memcpy(&header, base, sizeof header);
  if (header.magic != kMagic || header.ranks != static_cast<std::uint64_t>(ranks) ||
      header.total != layout.total) {
    return Status(Code::kTcpConnect, "shared memory: not a segment for these ranks");
  }
  return segment;
}

Segment::Segment(Fd memfd, int ranks, const Layout& layout, std::byte* base)
    : wake_fds(static_cast<std::size_t>(ranks)),
      heap_fds(static_cast<std::size_t>(ranks)),
      pids(static_cast<std::size_t>(ranks)),
      memfd_(std::move(memfd)),
      ranks_(ranks),
      layout_(layout),
      base_(base) {}

Segment::~Segment() { ::munmap(base_, layout_.total); }

std::uint64_t Segment::pair(int from, int to) const {
  // The rings that one rank reads are contiguous.
  return static_cast<std::uint64_t>(to) * static_cast<std::uint64_t>(ranks_) +
         static_cast<std::uint64_t>(from);
}

RankState& Segment::state(int rank) const {
  return *reinterpret_cast<RankState*>(base_ + layout_.states_at +
                                       static_cast<std::uint64_t>(rank) * sizeof(RankState));
}

RingControl* Segment::control(int from, int to) const {
  return reinterpret_cast<RingControl*>(base_ + layout_.controls_at +
                                        pair(from, to) * sizeof(RingControl));
}

RingBytes Segment::ring(int from, int to) const {
  return {base_ + layout_.rings_at + pair(from, to) * layout_.ring_bytes, layout_.ring_bytes};
}

}  // namespace hccl::transport::shm
