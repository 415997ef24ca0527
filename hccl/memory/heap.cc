#include "hccl/memory/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "hccl/base/error_text.h"
#include "hccl/base/memory_limit.h"
#include "hccl/base/pages.h"
#include "hccl/base/thread.h"
#include "hccl/memory/arena.h"

namespace hccl::memory {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status failure(const char* what) {
  const int error = errno;
  const bool addresses = error == ENOMEM && !limit_text(ENOMEM).empty();
  return Status(error == ENOMEM ? Code::kOom : Code::kSyscall,
                std::string("device memory: ") + what + ": " + error_text(error) +
                    (addresses ? ". A process maps the device memory of all ranks of its "
                                 "host; HCCL_DEVICE_MEMORY makes that of each smaller"
                               : ""));
}

// Names the limits that may keep a heap small.
std::string limits() { return limit_text(EFBIG) + limit_text(ENOMEM); }

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

Status no_memory(std::size_t bytes) {
  return Status(Code::kOom,
                "device memory: the machine has no memory for " + std::to_string(bytes) + " bytes");
}

// Asks for large pages, and excludes the mapping from core dumps. A dump would fault in the whole
// reserve. A dump would also delay the end of the dying process, and peers wait for that end.
void advise(void* at, std::size_t bytes) {
  ::madvise(at, bytes, MADV_HUGEPAGE);
  ::madvise(at, bytes, MADV_DONTDUMP);
}

std::size_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// Returns the size of the machine's memory. If the process's addresses are limited, returns at most
// an eighth of the limit, because the process also maps the heaps of its peers.
std::size_t usual_reserve() {
  constexpr std::size_t kPart = 8;
  const std::size_t memory = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return std::min(memory, limit_of(RLIMIT_AS) / kPart);
}

// Maps a whole heap; `flags`: MAP_FIXED or 0. If the program has called mlockall(MCL_FUTURE), the
// kernel would fill the mapping with memory, as large as the machine's. It does not for a mapping
// without access, which is then unlocked.
void* map_heap(void* at, std::size_t bytes, int flags, int memfd) {
  void* const base = ::mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | flags, memfd, 0);
  if (base == MAP_FAILED) return base;
  ::munlock(base, bytes);
  if (::mprotect(base, bytes, PROT_READ | PROT_WRITE) == 0) return base;
  if ((flags & MAP_FIXED) == 0) ::munmap(base, bytes);
  return MAP_FAILED;
}

}  // namespace

Result<std::shared_ptr<Heap>> Heap::create(std::size_t reserve) {
  reserve = round_up(reserve == 0 ? usual_reserve() : reserve, kGranule);
  reserve = std::min(reserve, limit_of(RLIMIT_FSIZE) / kGranule * kGranule);
  if (reserve == 0) return Status(Code::kOom, "device memory: no room" + limit_text(EFBIG));
  Fd memfd(::memfd_create("hccl-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.valid()) return failure("memfd_create");
  {
    const FilesWithinLimit within;
    if (::ftruncate(memfd.get(), static_cast<off_t>(reserve)) != 0) return failure("ftruncate");
  }
  if (::fcntl(memfd.get(), F_ADD_SEALS, kSeals) != 0) return failure("sealing");
  // The base is aligned to a granule, so that large pages can back the heap where the machine
  // allows them.
  void* const area = ::mmap(nullptr, reserve + kGranule, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return failure("reserving addresses");
  auto* const start = static_cast<std::byte*>(area);
  std::byte* const base = start + (round_up(reinterpret_cast<std::uintptr_t>(area), kGranule) -
                                   reinterpret_cast<std::uintptr_t>(area));
  if (base != start) ::munmap(start, static_cast<std::size_t>(base - start));
  ::munmap(base + reserve, static_cast<std::size_t>(start + kGranule - base));
  if (map_heap(base, reserve, MAP_FIXED, memfd.get()) == MAP_FAILED) {
    const Status status = failure("mmap");
    ::munmap(base, reserve);
    return status;
  }
  advise(base, reserve);
  return std::shared_ptr<Heap>(new Heap(std::move(memfd), base, reserve));
}

Heap::Heap(Fd memfd, std::byte* base, std::size_t reserve)
    : memfd_(std::move(memfd)),
      base_(base),
      reserve_(reserve),
      arena_(std::make_unique<Arena>(reserve)) {}

Heap::~Heap() { ::munmap(base_, reserve_); }

Result<std::uint64_t> Heap::take(std::size_t bytes, std::size_t alignment) {
  const auto offset = arena_->take(bytes, alignment);
  if (offset) return *offset;
  return Status(Code::kOom, "device memory: no room for " + std::to_string(bytes) + " bytes (" +
                                std::to_string(used_) + " of " + std::to_string(reserve_) +
                                " are in use)" + limits());
}

// The heaps of a host's ranks may grow at the same time. So each heap commits at most a 64th of the
// memory that is left, or one granule, before it reads the limits again.
constexpr std::uint64_t kShare = 64;
constexpr std::uint64_t kCredit = std::uint64_t{4} << 20;

Result<std::uint64_t> Heap::step(std::uint64_t at, std::uint64_t end) {
  const MutexLock lock(mutex_);
  const std::uint64_t missing = committed_.missing(at, end);
  if (missing <= credit_) {
    credit_ -= missing;
    return end;
  }
  MemoryLeft left = memory_left();
  if (missing > left.bytes) {
    shrink(0);
    left = memory_left();
  }
  if (missing > left.bytes) return no_room(missing, "device memory", left);
  const std::uint64_t share = left.bytes / kShare / kUnit * kUnit;
  credit_ = std::min(share, kCredit);
  return std::min(end, at + std::max(share, std::uint64_t{kGranule}));
}

Status Heap::commit(std::uint64_t offset, std::size_t bytes) {
  std::uint64_t at = offset / kUnit * kUnit;
  const std::uint64_t end = round_up(offset + bytes, kUnit);
  {
    const MutexLock lock(mutex_);
    if (committed_.missing(at, end) == 0) return {};
  }
  while (at != end) {
    HCCL_ASSIGN_OR_RETURN(const std::uint64_t next, step(at, end));
    if (!fault_in(base_ + at, next - at)) return no_memory(bytes);
    const MutexLock lock(mutex_);
    committed_.add(at, next);
    at = next;
  }
  return {};
}

// Gives all freed memory back, because memory is short. Returns `why`.
Status Heap::give_up(const Status& why) {
  const MutexLock lock(mutex_);
  shrink(0);
  return why;
}

// Returns free memory to the system. Begins with the largest parts, and takes the end of each part,
// because new allocations take the beginning.
void Heap::shrink(std::size_t kept) {
  const auto excess = [&]() HCCL_REQUIRES(mutex_) -> std::uint64_t {
    const std::uint64_t now = committed_.bytes() > used_ ? committed_.bytes() - used_ : 0;
    kept_.store(now, std::memory_order_relaxed);
    return now > kept ? now - kept : 0;
  };
  if (excess() == 0) return;
  arena_->each_free([&](std::uint64_t part, std::uint64_t size) HCCL_UNCHECKED {
    const std::uint64_t begin = round_up(part, kUnit);
    const std::uint64_t end = (part + size) / kUnit * kUnit;
    if (size < kUnit || excess() == 0) return false;
    if (begin >= end) return true;
    const std::uint64_t from = committed_.last(round_up(excess(), kUnit) + kGranule, begin, end);
    // Frees through the mapping: the program may have closed the memfd and may have opened another
    // file with the same descriptor. The kernel refuses MADV_REMOVE for locked memory; then
    // fallocate() frees the memory.
    if (::madvise(base_ + from, end - from, MADV_REMOVE) != 0 &&
        (!memfd_.ours() ||
         ::fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(from), static_cast<off_t>(end - from)) != 0)) {
      return false;
    }
    committed_.remove(from, end);
    return true;
  });
  static_cast<void>(excess());
}

void Heap::limit_kept(std::size_t bytes) {
  kept_limit_.store(bytes, std::memory_order_relaxed);
  if (kept() <= bytes) return;
  const MutexLock lock(mutex_);
  shrink(bytes);
}

Result<void*> Heap::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0 || bytes > reserve_) {
    return Status(bytes == 0 ? Code::kPara : Code::kOom, "device memory: cannot allocate " +
                                                             std::to_string(bytes) + " bytes" +
                                                             (bytes == 0 ? "" : limits()));
  }
  // Allocations have whole cache lines, so that no two allocations share a line.
  const std::size_t rounded = round_up(bytes, kAlignment);
  std::byte* memory = nullptr;
  {
    const MutexLock lock(mutex_);
    HCCL_ASSIGN_OR_RETURN(const std::uint64_t offset,
                          take(rounded, std::max(alignment, kAlignment)));
    memory = base_ + offset;
    live_.emplace(memory, bytes);
    used_ += rounded;
  }
  const Status there = commit(static_cast<std::uint64_t>(memory - base_), rounded);
  if (there.ok()) return static_cast<void*>(memory);
  HCCL_RETURN_IF_ERROR(free(memory));
  return give_up(there);
}

Status Heap::free(void* memory) {
  const MutexLock lock(mutex_);
  const auto at = live_.find(memory);
  if (at == live_.end()) {
    return Status(Code::kPara, memory == nullptr
                                   ? "device memory: the address to free is null"
                                   : "device memory: nothing is allocated at the address to free");
  }
  const std::size_t rounded = round_up(at->second, kAlignment);
  live_.erase(at);
  give_back(static_cast<std::uint64_t>(static_cast<std::byte*>(memory) - base_), rounded);
  return {};
}

// Recording a free part takes memory, but freeing must not fail. If there is no memory for the
// record, the part is never allocated again.
void Heap::give_back(std::uint64_t offset, std::size_t bytes) noexcept {
  used_ -= bytes;
  try {
    arena_->give_back(offset, bytes);
    shrink(kept_limit_.load(std::memory_order_relaxed));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see above
  }
}

// Changes spare_, then mappings_. So a child forked at any time finds at least one of the two maps
// complete.
template <class Change>
void Heap::change_mappings(Change change) {
  change(spare_);
  changing_.exchange(true);
  change(mappings_);
  changing_.exchange(false);
}

Status Heap::map(void* at, std::size_t bytes, std::uint64_t offset) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (address == 0 || bytes == 0 || address % page != 0 || bytes % page != 0 ||
      offset % page != 0 || offset > reserve_ || bytes > reserve_ - offset) {
    return Status(Code::kPara, "device memory: a mapping needs whole pages of the heap");
  }
  if (!memfd_.ours()) return Status(Code::kSyscall, "device memory: " + error_text(EBADF));
  const MutexLock lock(mutex_);
  const auto next = mappings_.lower_bound(address);
  const bool before =
      next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address;
  if (before || (next != mappings_.end() && next->first < address + bytes)) {
    return Status(Code::kPara, "device memory: the addresses already contain a mapping");
  }
  for (const auto& [_, other] : mappings_) {
    if (other.offset < offset + bytes && offset < other.offset + other.bytes) mapped_twice_ = true;
  }
  // The record comes first, so that a child forked meanwhile does not miss the mapping.
  change_mappings([&](Mappings& all) { all.insert_or_assign(address, Mapped{bytes, offset}); });
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
             memfd_.get(), static_cast<off_t>(offset)) == MAP_FAILED) {
    const Status status = failure("mapping a physical block");
    change_mappings([&](Mappings& all) { all.erase(address); });
    return status;
  }
  ::madvise(at, bytes, MADV_DONTDUMP);
  fault_in(static_cast<std::byte*>(at), bytes);  // the pages exist: only this mapping is new
  mapped_.store(true, std::memory_order_release);
  return {};
}

Status Heap::unmap(void* at) {
  const MutexLock lock(mutex_);
  const auto found = mappings_.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == mappings_.end())
    return Status(Code::kPara, "device memory: no mapping begins at the address");
  if (::mmap(at, found->second.bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return failure("removing a mapping");
  }
  change_mappings([address = found->first](Mappings& all) { all.erase(address); });
  mapped_.store(!mappings_.empty(), std::memory_order_release);
  return {};
}

std::optional<std::uint64_t> Heap::locate_mapped(std::uintptr_t at, std::size_t bytes) const {
  const MutexLock lock(mutex_);
  auto each = mappings_.upper_bound(at);
  if (each == mappings_.begin()) return std::nullopt;
  --each;
  if (at - each->first >= each->second.bytes) return std::nullopt;
  const std::uint64_t offset = each->second.offset + (at - each->first);
  // Blocks that are adjacent both in address and in the memfd count as one.
  std::size_t known = each->second.bytes - (at - each->first);
  while (known < bytes) {
    const auto next = std::next(each);
    if (next == mappings_.end() || next->first != each->first + each->second.bytes ||
        next->second.offset != each->second.offset + each->second.bytes) {
      return std::nullopt;
    }
    each = next;
    known += each->second.bytes;
  }
  return offset;
}

std::size_t Heap::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

Result<std::shared_ptr<View>> Heap::view_of(const Fd& memfd) {
  struct stat about{};
  if (::fstat(memfd.get(), &about) != 0) return failure("fstat");
  const MutexLock lock(mutex_);
  std::erase_if(views_, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<View>& known = views_[about.st_ino];
  if (std::shared_ptr<View> view = known.lock()) return view;
  HCCL_ASSIGN_OR_RETURN(std::shared_ptr<View> view, View::of(memfd));
  known = view;
  return view;
}

Result<std::shared_ptr<View>> View::of(const Fd& memfd) {
  struct stat about{};
  if (::fstat(memfd.get(), &about) != 0) return failure("fstat");
  // Without the seals another process could shrink the file, and every access would raise SIGBUS.
  const int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (about.st_size <= 0 || seals < 0 || (seals & kSeals) != kSeals) {
    return Status(Code::kTcpConnect, "device memory: the descriptor from a peer is not a heap");
  }
  const auto size = static_cast<std::size_t>(about.st_size);
  std::shared_ptr<View> view(new View);
  void* const base = map_heap(nullptr, size, 0, memfd.get());
  if (base == MAP_FAILED) return failure("mapping a peer's heap");
  advise(base, size);
  ::madvise(base, size, MADV_DONTFORK);  // a forked child is no peer
  view->base_ = static_cast<std::byte*>(base);
  view->size_ = size;
  return view;
}

View::~View() { ::munmap(base_, size_); }  // 0 bytes, if not mapped: no effect

}  // namespace hccl::memory
