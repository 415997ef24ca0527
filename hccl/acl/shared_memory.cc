#include "hccl/acl/shared_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "hccl/acl/failure.h"
#include "hccl/base/auth.h"
#include "hccl/base/error_text.h"
#include "hccl/base/fd.h"
#include "hccl/base/process.h"

namespace hccl::acl {
namespace {

constexpr std::size_t kKeyDigits = SharedMemory::kKeyDigits;

/// Where another process finds a heap.
struct Place {
  std::uint32_t process = 0;
  std::uint32_t descriptor = 0;
  std::uint64_t file = 0;  // inode of the heap XOR the number of this host's boot
  bool operator==(const Place&) const = default;
};

/// The contents of a key.
struct Part {
  Place heap;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

std::string encode(const Part& part) {
  return fmt::format("{:08x}{:08x}{:016x}{:016x}{:016x}", part.heap.process, part.heap.descriptor,
                     part.heap.file, part.offset, part.bytes);
}

std::optional<Part> decode(std::string_view key) {
  if (key.size() != kKeyDigits) return std::nullopt;
  Part part;
  bool good = true;
  const auto read = [&](auto& number) {
    constexpr std::size_t kDigits = 2 * sizeof number;
    const auto end = std::from_chars(key.data(), key.data() + kDigits, number, 16);
    good = good && end.ptr == key.data() + kDigits && end.ec == std::errc();
    key.remove_prefix(kDigits);
  };
  read(part.heap.process);
  read(part.heap.descriptor);
  read(part.heap.file);
  read(part.offset);
  read(part.bytes);
  return good ? std::optional(part) : std::nullopt;
}

Status stale(const Place& place, const char* why) {
  return bad("key: process " + std::to_string(place.process) +
             " of this host and user does not share that memory: " + why);
}

Result<std::uint64_t> number_of_boot() {
  HCCL_ASSIGN_OR_RETURN(const std::string boot, boot_id());
  const Key hash = digest(boot);
  std::uint64_t number = 0;
  std::memcpy(&number, hash.data(), sizeof number);
  return number;
}

/// Opens another process's heap. If the system has reused the number of the process or of the
/// descriptor, the inode differs, and the call fails.
Result<Fd> open_heap(const Place& place) {
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.descriptor);
  HCCL_ASSIGN_OR_RETURN(const std::uint64_t boot, number_of_boot());
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return stale(place, std::strerror(errno));
  if (!S_ISREG(about.st_mode) || (about.st_ino ^ boot) != place.file) {
    return stale(place, "the descriptor is another file's");
  }
  Fd heap(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (heap.valid()) return heap;
  const int error = errno;
  if (error == EMFILE || error == ENFILE || error == ENOMEM) {  // this process lacks the resource
    return Status(Code::kSyscall, "key: " + error_text(error));
  }
  return stale(place, std::strerror(error));
}

/// Returns where other processes find this process's heap.
Result<Place> place_of(const memory::Heap& heap) {
  HCCL_ASSIGN_OR_RETURN(const std::uint64_t boot, number_of_boot());
  struct stat about{};
  if (!heap.memfd().ours() || ::fstat(heap.memfd().get(), &about) != 0) {
    return Status(Code::kSyscall, "device memory: " + error_text(EBADF));
  }
  return Place{.process = static_cast<std::uint32_t>(::getpid()),
               .descriptor = static_cast<std::uint32_t>(heap.memfd().get()),
               .file = about.st_ino ^ boot};
}

}  // namespace

Result<std::string> SharedMemory::export_key(const memory::Heap& heap, const void* memory,
                                             std::size_t bytes) {
  const std::span<std::byte> block = heap.block_of(memory);
  const auto* const first = static_cast<const std::byte*>(memory);
  if (block.empty() || bytes > static_cast<std::size_t>(block.data() + block.size() - first)) {
    return bad("devPtr: the " + std::to_string(bytes) +
               " bytes do not lie in one allocation of aclrtMalloc");
  }
  Part part;
  HCCL_ASSIGN_OR_RETURN(part.heap, place_of(heap));
  part.offset = static_cast<std::uint64_t>(first - heap.base());
  part.bytes = bytes;
  std::string key = encode(part);
  const MutexLock lock(mutex_);
  ++uses_[key].exports;
  return key;
}

Status SharedMemory::check_exported(std::string_view key) {
  const MutexLock lock(mutex_);
  const auto at = uses_.find(key);
  if (at != uses_.end() && at->second.exports != 0) return {};
  return bad("key is of no memory that this process exports");
}

Result<void*> SharedMemory::import(memory::Heap& heap, std::string_view key) {
  const std::optional<Part> part = decode(key);
  if (!part) {
    return bad("key is no key of aclrtIpcMemGetExportKey, which has " + std::to_string(kKeyDigits) +
               " hexadecimal digits");
  }
  const Result<Place> own = place_of(heap);
  std::shared_ptr<memory::View> view;
  if (!own.ok() || part->heap != *own) {
    HCCL_ASSIGN_OR_RETURN(const Fd fd, open_heap(part->heap));
    auto mapped = heap.view_of(fd);
    if (mapped.status().code() == Code::kTcpConnect)
      return bad("key: " + mapped.status().message());
    if (!mapped.ok()) return mapped.status().with_context("key");
    view = std::move(mapped).value();
  }
  std::byte* const base = view == nullptr ? heap.base() : view->base();
  const std::size_t size = view == nullptr ? heap.reserve() : view->size();
  if (part->offset >= size || part->bytes > size - part->offset) {
    return stale(part->heap, "its device memory is smaller");
  }
  const MutexLock lock(mutex_);
  Use& use = uses_[std::string(key)];
  use.view = std::move(view);
  ++use.imports;
  return static_cast<void*>(base + part->offset);
}

Status SharedMemory::close(std::string_view key) {
  const MutexLock lock(mutex_);
  const auto at = uses_.find(key);
  if (at == uses_.end()) return bad("key is of no memory that this process imports or exports");
  Use& use = at->second;
  --(use.imports != 0 ? use.imports : use.exports);
  if (use.imports == 0 && use.exports == 0) uses_.erase(at);
  return {};
}

}  // namespace hccl::acl
