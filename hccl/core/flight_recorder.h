// The last operations of a communicator, always recorded, written to a file when it fails.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "hccl/base/status.h"
#include "hccl/exec/call.h"

namespace hccl::core {

class FlightRecorder {
 public:
  static constexpr std::size_t kOps = 2048;

  /// Notes that an operation begins; gives its number for end().
  std::uint64_t begin(const exec::Envelope& call, std::string_view algorithm);
  void end(std::uint64_t number, Code result);

  /// Writes what is recorded as JSON, oldest first. kOpenFileFailure names the path.
  Status dump(const std::string& path, const std::string& communicator, int rank, int size,
              const Status& why) const;

 private:
  using Clock = std::chrono::system_clock;
  struct Record {
    exec::Envelope call;
    std::array<char, 24> algorithm{};
    Clock::time_point start;
    Clock::time_point end;
    bool ended = false;
    Code result = Code::kSuccess;
  };
  mutable std::mutex mutex_;
  std::array<Record, kOps> records_;
  std::uint64_t begun_ = 0;
};

}  // namespace hccl::core
