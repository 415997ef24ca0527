// HCCL's rank table: the host, address and device of every rank. Versions "1.0" and "1.2" (server
// list, super pods), "1.1" (node list of host processes), and none (the legacy cloud and lab
// templates).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/deadline.h"
#include "hccl/base/status.h"

namespace hccl::join {

struct RankEntry {
  int rank = 0;
  std::string server_id;  ///< node_addr in version 1.1
  /// The shortest form of host_ip, else of server_id if that is an address, else of the first
  /// device_ip (version 1.1: of rank_ip, else of node_addr). Empty if the table has no address for
  /// the rank.
  std::string address;
  int device = -1;         ///< -1: a host process without a device (1.1)
  std::uint16_t port = 0;  ///< host_port, else device_port; 0: no port
  std::string pod = {};    ///< pod_name; legacy cloud tables only
  bool of_device = false;  ///< address is a device_ip
};

struct RankTable {
  std::string version;           ///< empty for a legacy table
  std::vector<RankEntry> ranks;  ///< ranks[r].rank == r, never empty
  /// The contents of the table, one line for each rank, independent of the layout: equal on all
  /// ranks of a job.
  std::string digest_text;
};

/// The largest number of ranks in a table.
inline constexpr std::size_t kRankTableRanks = 32768;

/// Reads a table from text. The item "status" must exist, with any value. kPara with EI0004 for
/// text that is not JSON, EI0017 for an item that is missing or of a wrong type, EI0014 for a wrong
/// value; kNotSupport for version 2.0 and unknown versions. Throws nothing.
Result<RankTable> parse_rank_table(std::string_view json);

/// Reads a table from a file: a path of 1..4095 bytes to a regular file whose resolved name ends in
/// .json (else kPara, EI0004; kInternal if it cannot be read). While the status is not "completed"
/// the file is read again every second, until the deadline (kTimeout). Any other error ends the
/// wait at once, so the file must be replaced atomically.
Result<RankTable> read_rank_table(const std::string& path, Deadline deadline);

/// The rank that RANK_ID names: decimal digits, or the pod name in a legacy cloud table. A pod with
/// several devices also needs the caller's `device`, which counts only then. kPara: the text cannot
/// name a rank of the table; kUnavail: the table has no such pod.
Result<int> own_rank(const RankTable& table, std::string_view identify,
                     std::optional<int> device = std::nullopt);

}  // namespace hccl::join
