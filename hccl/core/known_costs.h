// What the communicators of one tree know of costs: the table that rank 0 reads from
// HCCL_TUNE_FILE, on all ranks, so that all choose alike whatever files they can see.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/select/costs.h"

namespace hccl::core {

class KnownCosts {
 public:
  /// Rank 0: reads the file that the configuration names, and says what all ranks are to know. A
  /// file that cannot be used is a warning.
  static std::string offer(const Config& config, const Logger& log);
  /// All ranks: what rank 0 offered; "": nothing. kInternal: nothing that offer() makes;
  /// kNotSupport: there is no plugin for files.
  static Result<std::shared_ptr<KnownCosts>> accept(std::string_view offer);

  /// What measurements on these ranks would hold for. `hosts`: of each rank.
  select::CostKey key(const std::vector<int>& hosts, std::string_view transport, bool shared_cores,
                      bool kernel_copies) const;
  /// Null: nothing for this key.
  const select::CostEntry* find(const select::CostKey& key) const { return table_.find(key); }
  /// Whether a file is named, can be used, and has nothing of this kind for the key.
  bool wants(const select::CostKey& key, bool local) const;
  /// From now on the entry is known here; rank 0 also writes it to the file, or warns.
  void add(const select::CostEntry& entry, bool is_root, const Logger& log);

  /// For a key: the costs of messages that were measured for it or for the nearest one, if any.
  struct Use {
    const select::MessageCosts* messages = nullptr;
    std::string source;  ///< "default table", or "from /path (…)"
  };
  Use use(const select::CostKey& key) const;

 private:
  bool keeps_ = false;  // a file is named and can be used
  std::string path_;    // as rank 0 names it
  std::string cpu_;     // rank 0's
  select::CostTable table_;
  std::vector<select::CostKey> fresh_;  // measured now
};

}  // namespace hccl::core
