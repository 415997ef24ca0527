// What was measured about the ways to run collectives: the table behind HCCL_TUNE_FILE. Plain data;
// hccl/files writes it as a Protobuf message, and checks what it reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/exec/host/ways_fit.h"
#include "hccl/schedule/message_costs.h"

namespace hccl::core {

/// What a measurement holds for.
struct TuningKey {
  std::string library;    ///< version of this library
  std::string cpu;        ///< of rank 0's host: model and number of cores
  std::string transport;  ///< Mesh::name()
  std::uint32_t hosts = 1;
  std::uint32_t ranks_per_host = 1;  ///< of the host with the most
  bool shared_cores = false;         ///< some machine has fewer cores than ranks
  bool cma = false;  ///< one host, whose ranks may copy by way of the kernel (HostPath::attach)
  bool operator==(const TuningKey&) const = default;
};
/// "tcp, 2 hosts with 4 ranks each, AMD EPYC with 2 cores, hccl 0.1.0".
std::string words(const TuningKey& key);

struct TuningEntry {
  TuningKey key;
  std::optional<schedule::MessageCosts> messages;
  std::optional<exec::host::Ways> ways;
  std::vector<exec::host::WaySample> samples;  ///< that the ways were chosen by
  bool operator==(const TuningEntry&) const = default;
};

struct Tuning {
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kMostEntries = 256;

  std::vector<TuningEntry> entries;  ///< the newest last

  /// Null if there is none.
  const TuningEntry* find(const TuningKey& key) const;
  /// Of the entries with costs of messages on such a machine and transport, the one whose numbers
  /// of ranks and hosts are nearest; null if there is none.
  const TuningEntry* nearest(const TuningKey& key) const;
  /// In place of the one with the same key, if any. The oldest give way beyond kMostEntries.
  void put(TuningEntry entry);
  bool operator==(const Tuning&) const = default;
};

}  // namespace hccl::core
