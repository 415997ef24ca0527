#include "hccl/select/cost_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hccl/base/fd.h"
#include "hccl/base/thread.h"
#include "hccl/files/codecs.h"

namespace hccl::select {
namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20;

files::Form form_of(const std::string& path) {
  return path.ends_with(".json") ? files::Form::kJson : files::Form::kBinary;
}

Status failed(const std::string& path, const std::string& what) {
  return Status(Code::kOpenFileFailure, path + ": " + what);
}
Status failed_call(const std::string& path, const char* what) {
  return failed(path, std::string(what) + ": " + std::strerror(errno));
}

Status write_all(const Fd& fd, const std::string& path, std::string_view bytes) {
  const FilesWithinLimit within;
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failed_call(path, "cannot be written");
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Result<CostTable> decode(std::string_view bytes, files::Form form) {
  HCCL_ASSIGN_OR_RETURN(CostTable table, files::decode(&files::Codecs::costs, bytes, form));
  HCCL_RETURN_IF_ERROR(table.check());
  return table;
}

}  // namespace

Result<std::string> to_bytes(const CostTable& table) {
  return files::encode(&files::Codecs::costs, table, files::Form::kBinary);
}

Result<CostTable> from_bytes(std::string_view bytes) { return decode(bytes, files::Form::kBinary); }

Result<std::optional<CostTable>> read_costs(const std::string& path) {
  // Opens without blocking, because the path may name a pipe.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) return std::optional<CostTable>();
  if (!fd.valid()) return failed_call(path, "cannot be opened");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return failed_call(path, "cannot be examined");
  if (!S_ISREG(info.st_mode)) return failed(path, "is not a regular file");
  std::string bytes;
  char piece[1 << 14];
  for (;;) {
    const ssize_t got = ::read(fd.get(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed_call(path, "cannot be read");
    if (got == 0) break;
    bytes.append(piece, static_cast<std::size_t>(got));
    if (bytes.size() > kMostBytes) return Status(Code::kPara, path + ": is larger than 16 MiB");
  }
  if (bytes.empty()) return std::optional<CostTable>();
  auto table = decode(bytes, form_of(path));
  if (!table.ok()) return table.status().with_context(path);
  return std::optional<CostTable>(std::move(*table));
}

Status keep_costs(const std::string& path, const CostEntry& entry) {
  // Reads the file again, because another job may have added entries.
  HCCL_ASSIGN_OR_RETURN(auto there, read_costs(path));
  CostTable table = there ? std::move(*there) : CostTable{};
  table.put(entry);
  HCCL_ASSIGN_OR_RETURN(const std::string bytes,
                        files::encode(&files::Codecs::costs, table, form_of(path)));
  std::string fresh = path + ".XXXXXX";
  const Fd fd(::mkostemp(fresh.data(), O_CLOEXEC));
  if (!fd.valid()) return failed_call(path, "cannot create a temporary file next to it");
  Status status = write_all(fd, fresh, bytes);
  // Gives the permissions of an ordinary new file, so that other users may read the measurements.
  if (status.ok() && ::fchmod(fd.get(), 0644) != 0) status = failed_call(fresh, "chmod");
  if (status.ok() && ::rename(fresh.c_str(), path.c_str()) != 0) {
    status = failed_call(path, "cannot be replaced");
  }
  if (!status.ok()) static_cast<void>(::unlink(fresh.c_str()));
  return status;
}

}  // namespace hccl::select
