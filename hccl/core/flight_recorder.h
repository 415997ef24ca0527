// The last operations of a communicator, always recorded, written to a file when it fails.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "hccl/base/status.h"
#include "hccl/base/ticks.h"
#include "hccl/exec/call.h"

namespace hccl::core {

/// Used by one thread at a time, whoever runs the operations. Notes cost a few nanoseconds.
class FlightRecorder {
 public:
  static constexpr std::size_t kOps = 2048;

  FlightRecorder();

  /// Notes that an operation begins; gives its number for end(). `algorithm` is a name that lives
  /// as long as the program.
  std::uint64_t begin(const exec::Envelope& call, std::string_view algorithm) {
    Record& record = records_[begun_ % kOps];
    record.call = call;
    record.algorithm = algorithm;
    record.start = ticks();
    record.ended = false;
    return begun_++;
  }
  void end(std::uint64_t number, Code result) {
    Record& record = records_[number % kOps];
    record.end = ticks();
    record.ended = true;
    record.result = result;
  }
  /// For operations that find out on their way how they run.
  void end(std::uint64_t number, Code result, std::string_view algorithm) {
    records_[number % kOps].algorithm = algorithm;
    end(number, result);
  }

  /// Writes what is recorded as JSON, oldest first. kOpenFileFailure names the path.
  Status dump(const std::string& path, const std::string& communicator, int rank, int size,
              const Status& why) const;

 private:
  using Clock = std::chrono::system_clock;
  struct Record {
    exec::Envelope call;
    std::string_view algorithm;
    std::uint64_t start = 0;  // ticks
    std::uint64_t end = 0;
    bool ended = false;
    Code result = Code::kSuccess;
  };
  /// The time at this count of ticks, in microseconds since 1970.
  std::int64_t microseconds(std::uint64_t at) const;

  Clock::time_point began_;
  std::uint64_t began_ticks_;
  std::array<Record, kOps> records_;
  std::uint64_t begun_ = 0;
};

}  // namespace hccl::core
