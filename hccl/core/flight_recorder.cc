#include "hccl/core/flight_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "hccl/base/fd.h"
#include "hccl/base/thread.h"

namespace hccl::core {

namespace {

Pages pages_of(std::size_t bytes) {
  auto pages = map_pages(bytes);
  if (!pages.ok()) throw std::bad_alloc();
  return std::move(*pages);
}

}  // namespace

FlightRecorder::FlightRecorder()
    : began_(Clock::now()),
      began_ticks_(ticks()),
      pages_(pages_of(kOps * sizeof(Record))),
      records_(reinterpret_cast<Record*>(pages_.get())) {}

void FlightRecorder::take_memory() { std::uninitialized_value_construct_n(records_, kOps); }

std::int64_t FlightRecorder::microseconds(std::uint64_t at) const {
  const auto now = Clock::now();
  const std::uint64_t now_ticks = ticks();
  const double share =
      now_ticks == began_ticks_
          ? 0
          : static_cast<double>(at - began_ticks_) / static_cast<double>(now_ticks - began_ticks_);
  const auto when = began_ + std::chrono::duration_cast<Clock::duration>((now - began_) * share);
  return std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
}

void FlightRecorder::keep_latest(const std::string& directory, std::size_t number) {
  namespace fs = std::filesystem;
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (auto at = fs::directory_iterator(directory, error); !error && at != fs::end(at);
       at.increment(error)) {
    struct stat info{};
    const fs::path& path = at->path();
    if (!path.filename().native().starts_with(kPrefix) || ::lstat(path.c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) {
      continue;
    }
    std::error_code gone;
    found.emplace_back(fs::last_write_time(path, gone), path);
  }
  if (found.size() <= number) return;
  std::sort(found.begin(), found.end());
  for (std::size_t i = 0; i < found.size() - number; ++i) fs::remove(found[i].second, error);
}

Status FlightRecorder::dump(const std::string& path, const std::string& communicator, int rank,
                            int size, const Status& why) const {
  nlohmann::json ops = nlohmann::json::array();
  for (std::uint64_t i = begun_ > kOps ? begun_ - kOps : 0; i < begun_; ++i) {
    const Record& record = records_[i % kOps];
    nlohmann::json op = {{"call", to_string(record.call)},
                         {"algorithm", std::string(record.algorithm, record.algorithm_size)},
                         {"start_us", microseconds(record.start)}};
    if (record.ended) {
      op["end_us"] = microseconds(record.end);
      op["result"] = static_cast<int>(record.result);
    }
    ops.push_back(std::move(op));
  }
  const nlohmann::json document = {{"communicator", communicator},
                                   {"rank", rank},
                                   {"size", size},
                                   {"pid", ::getpid()},
                                   {"failure",
                                    {{"code", static_cast<int>(why.code())},
                                     {"culprit", why.culprit()},
                                     {"text", why.message()}}},
                                   {"operations", std::move(ops)}};
  const std::string text =
      document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const FilesWithinLimit within;
  // Other users may be able to put links into the directory, so open() must not follow a link.
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Status(Code::kOpenFileFailure, "cannot write " + path + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace hccl::core
