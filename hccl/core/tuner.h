// The tuning of one tree of communicators: what HCCL_TUNE_FILE of rank 0 says, on all ranks. Rank 0
// reads and writes the file; the others have what rank 0 tells them, so that all choose alike
// whatever files they can see.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/core/tuning.h"
#include "hccl/exec/executor.h"
#include "hccl/exec/host/host_path.h"

namespace hccl::core {

class Tuner {
 public:
  /// Without a file: the built-in defaults for everything.
  Tuner() = default;

  /// Rank 0: reads the file that the configuration names, and says what all ranks are to know. A
  /// file that cannot be used is a warning.
  static std::string offer(const Config& config, const Logger& log);
  /// All ranks: what rank 0 offered. kInternal: nothing that offer() makes.
  static Result<std::shared_ptr<Tuner>> accept(std::string_view offer);

  /// What measurements on these ranks would hold for. `hosts`: of each rank.
  TuningKey key(const std::vector<int>& hosts, std::string_view transport, bool shared_cores,
                bool cma) const;

  /// Whether a file is named, can be used, and has nothing for this key.
  bool wants(const TuningKey& key) const { return keeps_ && tuning_.find(key) == nullptr; }
  /// Collective; under a second. Leaves out what time did not allow.
  Result<TuningEntry> measure(const TuningKey& key, int size, exec::Executor& executor,
                              exec::host::HostPath* host_path, memory::Heap* heap,
                              const Limits& limits) const;
  /// One entry as bytes, and back: what rank 0 measured, for all.
  static std::string encode(const TuningEntry& entry);
  static Result<TuningEntry> decode(std::string_view bytes);
  /// From now on the entry is known here; rank 0 also writes it to the file, or warns.
  void add(const TuningEntry& entry, bool is_root, const Logger& log);

  /// What is to be used for a key. Ways hold only for what they were measured with; costs of
  /// messages are a model, so that the nearest ones serve where there are none of the key itself.
  struct Use {
    std::optional<schedule::MessageCosts> messages;
    std::optional<exec::host::Ways> ways;
    std::string source;  ///< "default table", or "from /path (…)"
  };
  Use use(const TuningKey& key) const;

 private:
  bool keeps_ = false;  // a file is named and can be used
  std::string path_;    // as rank 0 names it
  std::string cpu_;     // rank 0's
  Tuning tuning_;
  std::vector<TuningKey> fresh_;  // measured now
};

}  // namespace hccl::core
