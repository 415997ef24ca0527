// Every environment variable of the library. Each is documented at the member that holds its value.
// The variables of launchers are in hccl/join/launcher.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hccl/base/status.h"

namespace hccl {

enum class Deterministic : std::uint8_t { kOff, kOn, kStrict };
/// The protection of the data of a tcp link. kAuto: crc between hosts, plain inside a host.
enum class Wire : std::uint8_t { kAuto, kPlain, kCrc, kTls };
enum class Split : std::uint8_t { kDefault, kTrace, kAuto };

/// Returns the value of a variable of this process's environment; null if the variable is not set.
/// The rest of the library calls this function, not getenv().
const char* environment(const char* name);
/// Finds variables whose names are almost the name of a variable of this library. Returns a text
/// with the right name for each. `variables`: texts "NAME=value", then null.
std::vector<std::string> misspelt(const char* const* variables = environ);

/// The variables that the acl runtime reads at its first use, which needs no communicator.
struct DeviceConfig {
  /// Reads these variables as Config::read() does.
  static Result<DeviceConfig> read(
      const std::function<const char*(const char*)>& variables = environment);

  /// HCCL_DEVICE_COUNT: how many devices a process may choose from, 1..65536. Default: the larger
  /// of 16 and the number of cores, so that each rank of a host can have a device of its own.
  std::uint32_t count = 0;
  /// HCCL_DEVICE_MEMORY: MB of device memory that a process may have, 1..67108864. The default, 0
  /// here, means the memory of the machine. Memory is taken only when the program allocates it.
  std::uint32_t memory_mb = 0;
  /// HCCL_MEMORY_CACHE: MB of freed blocks that HcclMemFree keeps for HcclMemAlloc, 0..67108864;
  /// default 1024.
  std::uint32_t cache_mb = 1024;
};

struct Config {
  using GetEnv = std::function<const char*(const char*)>;
  /// Reads all variables. For a bad value, fails with kPara and the text "EI0001: Value … for
  /// environment variable … is invalid. Expected value: …".
  static Result<Config> read(const GetEnv& variables = environment);

  /// HCCL_TRANSPORT: auto (shm inside a host, tcp between hosts), or a name of
  /// transport/registry.h or of a plugin.
  std::string transport = "auto";
  /// HCCL_ALGO, in HCCL's grammar. It contains HCCL's words or this library's own names: names of
  /// local algorithms at level0, of remote algorithms at higher levels. read() checks the grammar;
  /// check_algorithms() checks this library's names.
  std::string algo;
  /// HCCL_CONNECT_TIMEOUT: seconds for all ranks to arrive and connect; 1..7200, default 120.
  std::chrono::seconds connect_timeout{120};
  /// HCCL_EXEC_TIMEOUT: seconds an operation may take; 0 = for ever, default 1836.
  std::chrono::seconds exec_timeout{1836};
  /// HCCL_BUFFSIZE: MB that a communicator may use to stage data; at least 1, default 200.
  /// Operations that need more scratch run in rounds.
  std::uint32_t buffer_mb = 200;
  /// HCCL_DETERMINISTIC: false, true or strict (any case); default false.
  Deterministic deterministic = Deterministic::kOff;
  bool deterministic_is_given = false;  ///< the variable is set
  /// HCCL_SPLIT: how gradients are cut into segments if the program has set no strategy: default
  /// (96.54 % and 3.46 %), auto (the best plan, from times measured while training runs), or trace
  /// (as default, with times measured over all ranks). Default: default. A program's own strategy
  /// always takes precedence.
  Split split = Split::kDefault;
  /// HCCL_IF_IP: the local address to bind to, "ip" or "ip%interface". The address must belong to
  /// that interface, or to any interface if none is named. CM_WORKER_IP takes precedence. The
  /// address and the interface are stored apart.
  std::string if_ip;
  std::string if_ip_interface;
  /// HCCL_SOCKET_IFNAME: the interfaces to use, by prefix ("eth,enp") or exact name ("=eth0"), or
  /// the interfaces to avoid ("^docker", "^=eth0").
  std::string socket_ifname;
  /// HCCL_SOCKET_FAMILY: the preferred family, AF_INET or AF_INET6; default AF_INET.
  int socket_family = 0;  // AF_UNSPEC = not set
  /// HCCL_IF_BASE_PORT: first port of the root's listener if peers must know the port beforehand
  /// (rank table, torchrun, Slurm); 1024..65520, default 60000. With root info the root takes a
  /// free port.
  std::uint16_t base_port = 60000;
  /// HCCL_HOST_SOCKET_PORT_RANGE: ports the root may listen on: "auto" or "60000-60031,61000".
  std::vector<std::pair<std::uint16_t, std::uint16_t>> port_ranges;
  /// HCCL_JOB_SECRET_FILE: file of the job's secret (owned by this user, mode 0600) for joins
  /// without root info. Between hosts, a join without root info fails unless this file or
  /// HCCL_ALLOW_INSECURE is given.
  std::string job_secret_file;
  /// HCCL_ALLOW_INSECURE: 1 permits joining without a secret between hosts; default 0.
  bool allow_insecure = false;
  /// The folders in which the ranks of one host meet (user_folder.h), in the order in which they
  /// are tried. No variable sets these folders, because ssh, Slurm and cron give the ranks of one
  /// job different variables.
  std::vector<std::string> meeting_places = {"/tmp", "/dev/shm"};
  /// HCCL_LOG or ASCEND_GLOBAL_LOG_LEVEL, in the form that make_logger() takes; default warn.
  std::string log_level = "warn";
  /// HCCL_FLIGHT_RECORDER_DIR: the folder to which the flight recorder is written on failure, or
  /// "off". Default: TMPDIR, else "hccl" in XDG_STATE_HOME, else "hccl" in .local/state of HOME. If
  /// none of these is set, nothing is written.
  std::string flight_recorder_dir;
  /// HCCL_TUNE_FILE: the file that measured costs are read from and written to; JSON if the name
  /// ends in .json. Rank 0's value counts for all ranks. The default is empty: nothing is measured,
  /// and the built-in costs decide.
  std::string tune_file;
  /// HCCL_PLUGIN_PATH: absolute directory of the plugins. Default: empty; then plugin_files()
  /// (plugin.h) lists the files that are tried.
  std::string plugin_path;
  /// HCCL_OFI_PROVIDER: libfabric provider; default: the best provider with reliable datagrams, for
  /// example "tcp;ofi_rxm".
  std::string ofi_provider;
  /// HCCL_WIRE: the protection of the tcp transport's data: plain (none), crc (a checksum that
  /// detects accidental changes), tls (encryption and authentication), or the default, auto (crc
  /// between hosts, plain inside a host).
  Wire wire = Wire::kAuto;
  /// HCCL_CMA: auto (the default): the kernel copies between the memory of a host's ranks (cross
  /// memory attach) if that is permitted and saves time; off: never.
  bool cma = true;
  /// HCCL_SPIN_US: microseconds to spin before sleeping; default: chosen from cores and ranks.
  std::optional<std::chrono::microseconds> spin;
  /// HCCL_PEER_TIMEOUT: seconds without a heartbeat after which a rank counts as dead; at least 5,
  /// default 30.
  std::chrono::seconds peer_timeout{30};

  /// Sets the value of HCCL_ALGO. kPara: the grammar is wrong or the text is too long; the old
  /// value stays.
  Status set_algo(std::string_view text);
  /// Returns the algorithm that HCCL_ALGO names for an operation ("allreduce", "allgather", …). At
  /// level 1 this is one of HCCL's words ("ring", "H-D_R", …) or one of the library's own names; at
  /// level 0 it is always one of the library's names. Empty: the library chooses. The entries of
  /// allgather, reducescatter and alltoall also hold for their V and VC forms.
  std::string algorithm_for(std::string_view operation, int level = 1) const;
  using Names = std::vector<std::string_view>;
  /// Checks the names in HCCL_ALGO against these lists of the library's names. kPara: a name is not
  /// in the list of its level; the error text has the list.
  Status check_algorithms(const Names& local, const Names& remote) const;
  /// Returns the settings that must be equal on all ranks, as text: "transport=auto algo= …". Ranks
  /// compare these texts when they join.
  std::string agreement() const;
};

}  // namespace hccl
