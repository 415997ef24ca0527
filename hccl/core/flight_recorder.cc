#include "hccl/core/flight_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "hccl/base/fd.h"

namespace hccl::core {

std::uint64_t FlightRecorder::begin(const exec::Envelope& call, std::string_view algorithm) {
  std::lock_guard lock(mutex_);
  Record& record = records_[begun_ % kOps];
  record.call = call;
  record.algorithm.fill('\0');
  std::copy_n(algorithm.data(), std::min(algorithm.size(), record.algorithm.size() - 1),
              record.algorithm.data());
  record.start = Clock::now();
  record.ended = false;
  return begun_++;
}

void FlightRecorder::end(std::uint64_t number, Code result) {
  std::lock_guard lock(mutex_);
  Record& record = records_[number % kOps];
  record.end = Clock::now();
  record.ended = true;
  record.result = result;
}

Status FlightRecorder::dump(const std::string& path, const std::string& communicator, int rank,
                            int size, const Status& why) const {
  const auto microseconds = [](Clock::time_point at) {
    return std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count();
  };
  nlohmann::json ops = nlohmann::json::array();
  {
    std::lock_guard lock(mutex_);
    for (std::uint64_t i = begun_ > kOps ? begun_ - kOps : 0; i < begun_; ++i) {
      const Record& record = records_[i % kOps];
      nlohmann::json op = {{"call", exec::words(record.call)},
                           {"algorithm", record.algorithm.data()},
                           {"start_us", microseconds(record.start)}};
      if (record.ended) {
        op["end_us"] = microseconds(record.end);
        op["result"] = static_cast<int>(record.result);
      }
      ops.push_back(std::move(op));
    }
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
  // Nobody may have put a link there beforehand.
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Status(Code::kOpenFileFailure, "cannot write " + path + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace hccl::core
