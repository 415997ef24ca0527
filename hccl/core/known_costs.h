// The costs that a world and its groups know: rank 0 reads the table from HCCL_TUNE_FILE and sends
// the table to all ranks. So all ranks choose the same algorithms, even if some ranks cannot see
// the file.
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
  /// Rank 0: reads the file that the configuration names, and returns the data for all ranks. Warns
  /// if a file cannot be used.
  static std::string offer(const Config& config, const Logger& log);
  /// All ranks: takes the data that offer() returned on rank 0; an empty text means no data.
  /// kInternal: the data does not come from offer(). kNotSupport: the plugin for files is missing.
  static Result<std::shared_ptr<KnownCosts>> accept(std::string_view offer);

  /// Returns the key under which measurements on these ranks are stored. `hosts`: the number of
  /// each rank's host.
  select::CostKey key(const std::vector<int>& hosts, std::string_view transport, bool shared_cores,
                      bool kernel_copies) const;
  /// Null if the key has no entry.
  const select::CostEntry* find(const select::CostKey& key) const { return table_.find(key); }
  /// Returns whether costs must be measured: a usable file is named, and has no costs for the key.
  /// If `local`, these are costs inside a host, else costs of messages.
  bool wants(const select::CostKey& key, bool local) const;
  /// Adds the entry to this table. Rank 0 also writes the entry to the file, or logs a warning.
  void add(const select::CostEntry& entry, bool is_root, const Logger& log);

  /// A communicator's costs of messages: those in its key's entry. If the table has no entry for
  /// the key, those measured for the nearest key. `messages` is null if there are none.
  struct Use {
    const select::MessageCosts* messages = nullptr;
    std::string source;  ///< "default table", or "from /path (…)"
  };
  Use use(const select::CostKey& key) const;

 private:
  bool keeps_ = false;  // a file is named and can be used
  std::string path_;    // the file, as rank 0 names it
  std::string cpu_;     // the processor of rank 0's host
  select::CostTable table_;
  std::vector<select::CostKey> fresh_;  // measured now
};

}  // namespace hccl::core
