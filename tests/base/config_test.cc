// Every environment variable: default, good values, bad values.
#include "hccl/base/config.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <map>

namespace hccl {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Config> read(const Variables& variables) {
  return Config::read([&](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

Config good(const Variables& variables) {
  const auto config = read(variables);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? config.value() : Config{};
}

void refuses(const char* name, std::initializer_list<std::string> values) {
  for (const std::string& value : values) {
    const auto config = read({{name, value}});
    EXPECT_EQ(config.status().code(), Code::kPara) << name << "=" << value;
    for (const std::string& word :
         {std::string("EI0001: Value \""), std::string(name), std::string("Expected value: ")}) {
      EXPECT_NE(config.status().message().find(word), std::string::npos)
          << word << " is not in: " << config.status().message();
    }
  }
}

TEST(Config, Defaults) {
  const Config c = good({});
  EXPECT_EQ(c.transport, "auto");
  EXPECT_EQ(c.algo, "");
  EXPECT_EQ(c.connect_timeout.count(), 120);
  EXPECT_EQ(c.exec_timeout.count(), 1836);
  EXPECT_EQ(c.buffer_mb, 200u);
  EXPECT_EQ(c.deterministic, Deterministic::kOff);
  EXPECT_EQ(c.if_ip, "");
  EXPECT_EQ(c.if_ip_interface, "");
  EXPECT_EQ(c.socket_ifname, "");
  EXPECT_EQ(c.socket_family, AF_UNSPEC);
  EXPECT_EQ(c.base_port, 60000);
  EXPECT_TRUE(c.port_ranges.empty());
  EXPECT_EQ(c.job_secret_file, "");
  EXPECT_FALSE(c.allow_insecure);
  EXPECT_EQ(c.log_level, "warn");
  EXPECT_EQ(c.flight_recorder_dir, "");
  EXPECT_EQ(c.plugin_path, "");
  EXPECT_EQ(c.tune_file, "");
  EXPECT_EQ(c.ofi_provider, "");
  EXPECT_FALSE(c.spin.has_value());
  EXPECT_EQ(c.peer_timeout.count(), 30);
}

// HCCL's word for a variable that is not set, in every variable at once.
TEST(Config, EmptyStringIsNotSet) {
  const auto config = Config::read([](const char*) { return "EmptyString"; });
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().agreement(), good({}).agreement());
  EXPECT_EQ(config.value().if_ip, "");
  EXPECT_EQ(config.value().connect_timeout.count(), 120);
}

TEST(DeviceConfig, CountAndMemory) {
  const auto device = [](const Variables& variables) {
    return DeviceConfig::read([&](const char* name) {
      const auto at = variables.find(name);
      return at == variables.end() ? nullptr : at->second.c_str();
    });
  };
  ASSERT_TRUE(device({}).ok());
  EXPECT_GE(device({})->count, 16u);
  EXPECT_EQ(device({})->memory_mb, 0u);
  EXPECT_EQ(device({})->cache_mb, 1024u);
  EXPECT_EQ(device({{"HCCL_MEMORY_CACHE", "0"}})->cache_mb, 0u);
  EXPECT_FALSE(device({{"HCCL_MEMORY_CACHE", "-1"}}).ok());
  const auto set = device({{"HCCL_DEVICE_COUNT", "3"}, {"HCCL_DEVICE_MEMORY", "67108864"}});
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->count, 3u);
  EXPECT_EQ(set->memory_mb, 67108864u);
  for (const char* name : {"HCCL_DEVICE_COUNT", "HCCL_DEVICE_MEMORY"}) {
    for (const char* value : {"0", "-1", "", "many", "67108865", "99999999999999999999"}) {
      const auto refused = device({{name, value}});
      EXPECT_EQ(refused.status().code(), Code::kPara) << name << "=" << value;
      EXPECT_NE(refused.status().message().find(name), std::string::npos);
    }
  }
  ASSERT_TRUE(device({{"HCCL_DEVICE_COUNT", "EmptyString"}}).ok());
}

TEST(Config, Transport) {
  for (const char* word : {"auto", "shm", "tcp", "ofi", "mpi", "my_plugin2"}) {
    EXPECT_EQ(good({{"HCCL_TRANSPORT", word}}).transport, word);
  }
  EXPECT_EQ(good({{"HCCL_TRANSPORT", ""}}).transport, "auto");
  refuses("HCCL_TRANSPORT", {"../evil", "a/b", "tcp,shm", " tcp", "tcp ", std::string(65, 't')});
}

TEST(Config, Timeouts) {
  EXPECT_EQ(good({{"HCCL_CONNECT_TIMEOUT", "1"}}).connect_timeout.count(), 1);
  EXPECT_EQ(good({{"HCCL_CONNECT_TIMEOUT", "0007200"}}).connect_timeout.count(), 7200);
  refuses("HCCL_CONNECT_TIMEOUT", {"", "0", "7201", "-1", "+5", " 5", "5 ", "5s", "1.5", "0x10",
                                   "00000000120", "99999999999999999999"});
  EXPECT_EQ(good({{"HCCL_EXEC_TIMEOUT", "0"}}).exec_timeout.count(), 0);
  EXPECT_EQ(good({{"HCCL_EXEC_TIMEOUT", "2147483647"}}).exec_timeout.count(), 2147483647);
  EXPECT_EQ(good({{"HCCL_EXEC_TIMEOUT", "5.00"}}).exec_timeout.count(), 5);
  EXPECT_EQ(good({{"HCCL_EXEC_TIMEOUT", "5.01"}}).exec_timeout.count(), 6);
  EXPECT_EQ(good({{"HCCL_EXEC_TIMEOUT", "0.5"}}).exec_timeout.count(), 1);
  refuses("HCCL_EXEC_TIMEOUT", {"", ".", ".5", "5.", "5.001", "5.0.0", "2147483648", "-1", "1e3",
                                "5.-1", "5.+1", "5. "});
  EXPECT_EQ(good({{"HCCL_PEER_TIMEOUT", "5"}}).peer_timeout.count(), 5);
  refuses("HCCL_PEER_TIMEOUT", {"", "0", "-1", "1", "4", "2147483648", "x"});
  EXPECT_EQ(good({{"HCCL_SPIN_US", "0"}}).spin->count(), 0);
  EXPECT_EQ(good({{"HCCL_SPIN_US", "1000000"}}).spin->count(), 1000000);
  refuses("HCCL_SPIN_US", {"", "1000001", "-1", "1us"});
}

TEST(Config, KernelCopies) {
  EXPECT_TRUE(good({}).cma);
  EXPECT_TRUE(good({{"HCCL_CMA", "auto"}}).cma);
  EXPECT_FALSE(good({{"HCCL_CMA", "off"}}).cma);
  EXPECT_NE(good({{"HCCL_CMA", "off"}}).agreement(), good({}).agreement());
  refuses("HCCL_CMA", {"on", "0", "OFF"});
}

TEST(Config, Wire) {
  EXPECT_EQ(good({}).wire, Wire::kAuto);
  EXPECT_EQ(good({{"HCCL_WIRE", ""}}).wire, Wire::kAuto);
  EXPECT_EQ(good({{"HCCL_WIRE", "auto"}}).wire, Wire::kAuto);
  EXPECT_EQ(good({{"HCCL_WIRE", "plain"}}).wire, Wire::kPlain);
  EXPECT_EQ(good({{"HCCL_WIRE", "crc"}}).wire, Wire::kCrc);
  EXPECT_EQ(good({{"HCCL_WIRE", "tls"}}).wire, Wire::kTls);
  EXPECT_NE(good({{"HCCL_WIRE", "tls"}}).agreement().find("wire=tls"), std::string::npos);
  refuses("HCCL_WIRE", {"TLS", "none", "crc,tls", "0"});
}

TEST(Config, BufferSize) {
  EXPECT_EQ(good({{"HCCL_BUFFSIZE", "1"}}).buffer_mb, 1u);
  EXPECT_EQ(good({{"HCCL_BUFFSIZE", "1048576"}}).buffer_mb, 1048576u);
  refuses("HCCL_BUFFSIZE", {"", "0", "1048577", "-200", "200MB", "4294967297"});
}

TEST(Config, Deterministic) {
  for (const char* word : {"false", "False", "FALSE"}) {
    EXPECT_EQ(good({{"HCCL_DETERMINISTIC", word}}).deterministic, Deterministic::kOff);
  }
  for (const char* word : {"true", "TRUE"}) {
    EXPECT_EQ(good({{"HCCL_DETERMINISTIC", word}}).deterministic, Deterministic::kOn);
  }
  EXPECT_EQ(good({{"HCCL_DETERMINISTIC", "Strict"}}).deterministic, Deterministic::kStrict);
  refuses("HCCL_DETERMINISTIC", {"", "1", "0", "yes", "true ", "strictly"});
}

TEST(Config, SplitStrategy) {
  EXPECT_EQ(good({}).split, Split::kDefault);
  EXPECT_EQ(good({{"HCCL_SPLIT", "default"}}).split, Split::kDefault);
  EXPECT_EQ(good({{"HCCL_SPLIT", "auto"}}).split, Split::kAuto);
  EXPECT_EQ(good({{"HCCL_SPLIT", "trace"}}).split, Split::kTrace);
  refuses("HCCL_SPLIT", {"Auto", "yes", "1", "auto "});
}

TEST(Config, LocalAddress) {
  EXPECT_EQ(good({{"HCCL_IF_IP", "10.0.0.1"}}).if_ip, "10.0.0.1");
  EXPECT_EQ(good({{"HCCL_IF_IP", "fd00::1"}}).if_ip, "fd00::1");
  const Config zone = good({{"HCCL_IF_IP", "10.0.0.1%eth0"}});
  EXPECT_EQ(zone.if_ip, "10.0.0.1");
  EXPECT_EQ(zone.if_ip_interface, "eth0");
  const Config both = good({{"HCCL_IF_IP", "10.0.0.1%eth0"}, {"CM_WORKER_IP", "10.0.0.2"}});
  EXPECT_EQ(both.if_ip, "10.0.0.2");
  EXPECT_EQ(both.if_ip_interface, "");
  EXPECT_EQ(good({{"HCCL_IF_IP", "10.0.0.1"}, {"CM_WORKER_IP", ""}}).if_ip, "10.0.0.1");
  for (const char* name : {"HCCL_IF_IP", "CM_WORKER_IP"}) {
    refuses(name, {"eth0", "10.0.0", "10.0.0.1:80", "10.0.0.1%", "%eth0", " 10.0.0.1", "host",
                   "10.0.0.256", "10.0.0.1,10.0.0.2", "[::1]"});
  }
}

TEST(Config, SocketInterfaces) {
  for (const char* text : {"eth", "eth,enp", "^docker", "=eth0", "=eth0,eth1", "^=eth0,lo", "br-1",
                           "eth0.100", "eth0:1"}) {
    EXPECT_EQ(good({{"HCCL_SOCKET_IFNAME", text}}).socket_ifname, text);
  }
  refuses("HCCL_SOCKET_IFNAME", {"", ",", "eth,", ",eth", "eth,,enp", "^", "=", "^=", "^,eth",
                                 "=^eth", "==eth", "^^eth", "^==eth", "eth,=enp", "eth,^enp"});
  EXPECT_EQ(good({{"HCCL_SOCKET_FAMILY", "AF_INET"}}).socket_family, AF_INET);
  EXPECT_EQ(good({{"HCCL_SOCKET_FAMILY", "AF_INET6"}}).socket_family, AF_INET6);
  refuses("HCCL_SOCKET_FAMILY", {"", "af_inet", "AF_INET4", "IPv4", "AF_UNIX"});
}

TEST(Config, SettingsOfNpusAreChecked) {
  good({{"HCCL_RDMA_TC", "132"}, {"HCCL_RDMA_SL", "4"}, {"HCCL_RDMA_TIMEOUT", "20"}});
  good({{"HCCL_OP_RETRY_ENABLE", "L0:0, L1:0, L2:0"}, {"HCCL_OP_RETRY_PARAMS", ""}});
  good({{"HCCL_OP_RETRY_ENABLE", ""},
        {"HCCL_OP_RETRY_PARAMS", "MaxCnt:1,HoldTime:5,IntervalTime:9"}});
  good({{"HCCL_OP_EXPANSION_MODE", "AIV"}});  // the modes depend on the NPU
  refuses("HCCL_RDMA_TC", {"", "131", "256", "x"});
  refuses("HCCL_RDMA_SL", {"", "8", "-1"});
  refuses("HCCL_RDMA_TIMEOUT", {"4", "25"});
  refuses("HCCL_RDMA_RETRY_CNT", {"0", "8"});
  refuses("HCCL_RDMA_QPS_PER_CONNECTION", {"0", "33"});
  refuses("HCCL_OP_RETRY_ENABLE", {"1", "L3:1", "L1:1,L1:1", "L1:2"});
  refuses("HCCL_OP_RETRY_PARAMS", {"MaxCnt:11,HoldTime:5,IntervalTime:9", "MaxCnt:1"});
}

TEST(Config, Ports) {
  EXPECT_EQ(good({{"HCCL_IF_BASE_PORT", "1024"}}).base_port, 1024);
  EXPECT_EQ(good({{"HCCL_IF_BASE_PORT", "65520"}}).base_port, 65520);
  refuses("HCCL_IF_BASE_PORT", {"", "1023", "65521", "0", "-60000", "60000-60031"});
  using Ranges = std::vector<std::pair<std::uint16_t, std::uint16_t>>;
  const auto ranges = [](const char* text) {
    return good({{"HCCL_HOST_SOCKET_PORT_RANGE", text}}).port_ranges;
  };
  EXPECT_EQ(ranges(""), Ranges{});
  EXPECT_EQ(ranges("auto"), (Ranges{{0, 0}}));
  EXPECT_EQ(ranges("60000"), (Ranges{{60000, 60000}}));
  EXPECT_EQ(ranges(" 61000 , 60000 - 60031 "), (Ranges{{61000, 61000}, {60000, 60031}}));
  EXPECT_EQ(ranges("1-65535"), (Ranges{{1, 65535}}));
  EXPECT_EQ(ranges("1-2,3,4-4"), (Ranges{{1, 2}, {3, 3}, {4, 4}}));
  refuses("HCCL_HOST_SOCKET_PORT_RANGE",
          {"0", "65536", "0-5", "5-4", "1-", "-1", "1-2-3", "1,,2", ",1", "1,", "auto,1", "AUTO",
           "1-5,5-9", "5,5", "1-10,3", "3,1-10", "a", "1..5", " "});
}

TEST(Config, Joining) {
  EXPECT_EQ(good({{"HCCL_JOB_SECRET_FILE", "/run/secret"}}).job_secret_file, "/run/secret");
  EXPECT_TRUE(good({{"HCCL_ALLOW_INSECURE", "1"}}).allow_insecure);
  EXPECT_FALSE(good({{"HCCL_ALLOW_INSECURE", "0"}}).allow_insecure);
  refuses("HCCL_ALLOW_INSECURE", {"", "2", "true", "yes", "-1"});
  good({{"HCCL_WHITELIST_DISABLE", "1"}});
  refuses("HCCL_WHITELIST_DISABLE", {"", "2", "true", "-1"});
  EXPECT_EQ(read({{"HCCL_WHITELIST_DISABLE", "0"}}).status().code(), Code::kNotSupport);
}

TEST(Config, Diagnosis) {
  for (const char* level : {"trace", "debug", "info", "warn", "error", "off"}) {
    EXPECT_EQ(good({{"HCCL_LOG", level}}).log_level, level);
  }
  refuses("HCCL_LOG", {"", "WARN", "warning", "3", "critical"});
  const std::pair<const char*, const char*> levels[] = {
      {"0", "debug"}, {"1", "info"}, {"2", "warn"}, {"3", "error"}, {"4", "off"}, {"", "warn"}};
  for (const auto& [number, word] : levels) {
    Variables log = {{"ASCEND_GLOBAL_LOG_LEVEL", number}, {"ASCEND_SLOG_PRINT_TO_STDOUT", "0"}};
    EXPECT_EQ(good(log).log_level, word);
    log["ASCEND_SLOG_PRINT_TO_STDOUT"] = "1";
    EXPECT_EQ(good(log).log_level, word + std::string(" stdout"));
    log["HCCL_LOG"] = "trace";
    EXPECT_EQ(good(log).log_level, "trace");
  }
  EXPECT_EQ(good({{"ASCEND_SLOG_PRINT_TO_STDOUT", "1"}}).log_level, "warn stdout");
  refuses("ASCEND_GLOBAL_LOG_LEVEL", {"5", "-1", "info", "01", " 1"});
  refuses("ASCEND_SLOG_PRINT_TO_STDOUT", {"2", "true"});
  EXPECT_EQ(good({{"HCCL_FLIGHT_RECORDER_DIR", "off"}}).flight_recorder_dir, "off");
  EXPECT_EQ(good({{"HCCL_FLIGHT_RECORDER_DIR", "/var/log"}}).flight_recorder_dir, "/var/log");
  Variables places = {{"HCCL_FLIGHT_RECORDER_DIR", "/var/log"},
                      {"TMPDIR", "/job"},
                      {"XDG_STATE_HOME", "/home/a/state"},
                      {"HOME", "/home/a"}};
  for (const auto& [name, expected] :
       {std::pair("HCCL_FLIGHT_RECORDER_DIR", "/var/log"), std::pair("TMPDIR", "/job"),
        std::pair("XDG_STATE_HOME", "/home/a/state/hccl"),
        std::pair("HOME", "/home/a/.local/state/hccl")}) {
    EXPECT_EQ(good(places).flight_recorder_dir, expected);
    places.erase(name);
  }
  EXPECT_EQ(good({{"HCCL_TUNE_FILE", "costs.json"}}).tune_file, "costs.json");
  refuses("HCCL_TUNE_FILE", {std::string(5000, 'x')});
}

TEST(Config, Plugins) {
  EXPECT_EQ(good({{"HCCL_PLUGIN_PATH", "/opt/p"}}).plugin_path, "/opt/p");
  EXPECT_EQ(good({{"HCCL_PLUGIN_PATH", ""}}).plugin_path, "");
  refuses("HCCL_PLUGIN_PATH", {"plugins", "./plugins", "~/plugins"});
  EXPECT_EQ(good({{"HCCL_OFI_PROVIDER", "tcp;ofi_rxm"}}).ofi_provider, "tcp;ofi_rxm");
}

TEST(ConfigAlgo, CommonPartHoldsForEveryOperation) {
  const Config c = good({{"HCCL_ALGO", " level0:NA ; level1: H-D_R "}});
  for (const char* op : {"allreduce", "reduce_scatter", "alltoallv", "broadcast"}) {
    EXPECT_EQ(c.algorithm_for(op), "H-D_R") << op;
  }
  EXPECT_EQ(good({{"HCCL_ALGO", "level0:ring"}}).algorithm_for("allreduce"), "");
  EXPECT_EQ(good({{"HCCL_ALGO", "level1:NA"}}).algorithm_for("allreduce"), "");
  EXPECT_EQ(good({{"HCCL_ALGO", "level1:null"}}).algorithm_for("allreduce"), "");
  EXPECT_EQ(good({}).algorithm_for("allreduce"), "");
}

TEST(ConfigAlgo, SpecificParts) {
  const Config c = good({{"HCCL_ALGO",
                          "allreduce=level0:NA;level1:ring/allgather=level1:NHR/"
                          "reducescatter=level1:NB/alltoall=level1:pairwise/reduce=level2:ring"}});
  const std::pair<const char*, const char*> expected[] = {
      {"allreduce", "ring"},
      {"allgather", "NHR"},
      {"allgatherv", "NHR"},
      {"all_gather_v", "NHR"},
      {"reducescatter", "NB"},
      {"reduce_scatter_v", "NB"},
      {"reducescatterv", "NB"},
      {"alltoall", "pairwise"},
      {"alltoallv", "pairwise"},
      {"alltoallvc", "pairwise"},
      {"reduce", ""},
      {"broadcast", ""},
      {"scatter", ""},
  };
  for (const auto& [op, algorithm] : expected) EXPECT_EQ(c.algorithm_for(op), algorithm) << op;
}

TEST(ConfigAlgo, EveryWord) {
  for (const char* algorithm : {"NA", "null", "ring", "H-D_R", "NHR", "NHR_V1", "NB", "AHC",
                                "AHC_BROKE", "pipeline", "pairwise", "fullmesh"}) {
    for (const char* level : {"level0", "level1", "level2", "level3"}) {
      good({{"HCCL_ALGO", std::string(level) + ":" + algorithm}});
    }
  }
  for (const char* op : {"allreduce", "allgather", "reducescatter", "broadcast", "reduce",
                         "scatter", "alltoall", "gather", "send", "receive", "sendrecv"}) {
    EXPECT_EQ(good({{"HCCL_ALGO", std::string(op) + "=level1:ring"}}).algorithm_for(op), "ring");
  }
  good({{"HCCL_ALGO", "level0:NA;level1:ring;level2:NB;level3:NA"}});
}

TEST(ConfigAlgo, BadValues) {
  refuses("HCCL_ALGO", {"ring", "level1", "level1:", ":ring", "level4:ring", "level1:Ring",
                        "Level1:ring", "level1:ring;", ";level1:ring", "level1:ring/",
                        "/level1:ring", "=level1:ring", "allreduce=", "level1:ring:NB"});
  refuses("HCCL_ALGO", {"allreduce=level1:ring/", "allreduce=level1:ring;", "level1:ring;level1:NB",
                        "level1:ring/level2:ring", "others=level1:ring", "AllReduce=level1:ring",
                        "allreduce=level0:null", "level1:ring,level2:ring"});
  refuses("HCCL_ALGO",
          {"level0:NA;level1:NA;level2:NA;level3:NA;level0:NA", "level1:ring/allreduce=level1:ring",
           "allreduce=level1:ring/level1:ring", "allreduce=level1:ring/allreduce=level1:NB",
           "allreduce=allgather=level1:ring"});
  refuses("HCCL_ALGO", {"level0:" + std::string(1530, 'a')});
}

TEST(Config, MisspeltNamesAreTold) {
  const auto nearest = [](const std::string& name) {
    const std::string set = name + "=1";
    const char* const variables[] = {set.c_str(), nullptr};
    const auto texts = misspelt(variables);
    return texts.empty() ? "" : texts[0].substr(texts[0].rfind(' ') + 1);
  };
  EXPECT_EQ(nearest("HCCL_BUFFER_SIZE"), "HCCL_BUFFSIZE");
  EXPECT_EQ(nearest("HCCL_TRANSPROT"), "HCCL_TRANSPORT");
  EXPECT_EQ(nearest("HCCL_CONNECTION_TIMEOUT"), "HCCL_CONNECT_TIMEOUT");
  EXPECT_EQ(nearest("HCCL_LOG_LEVEL"), "HCCL_LOG");
  EXPECT_EQ(nearest("HCCL_LOGLEVEL"), "");
  EXPECT_EQ(nearest("HCCL_CONECT_TIME_OUT"), "HCCL_CONNECT_TIMEOUT");
  EXPECT_EQ(nearest("HCCL_LOGS"), "HCCL_LOG");
  EXPECT_EQ(nearest("HCCL_DEVICES_COUNT"), "HCCL_DEVICE_COUNT");
  EXPECT_EQ(nearest("HCCL_JOBID"), "HCCL_JOB_ID");
  EXPECT_EQ(nearest("HCCL_HALFS"), "HCCL_HALF");
  // No suggestion for correct names, for other variables of HCCL, or for those of torch_npu and
  // other libraries.
  for (const char* name :
       {"HCCL_LOG", "HCCL_CMA", "HCCL_MEMORY_CACHE", "HCCL_JOB_ID", "HCCL_WHITELIST_DISABLE",
        "HCCL_EVENT_TIMEOUT", "HCCL_RDMA_TIMEOUT", "HCCL_INTRA_ROCE_ENABLE",
        "HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_LOGIC_SUPERPOD_ID", "HCCL_OP_RETRY_ENABLE",
        "HCCL_NPU_SOCKET_PORT_RANGE", "HCCL_", "HCCL_X", "NCCL_BUFFSIZE"}) {
    EXPECT_EQ(nearest(name), "") << name;
  }
}

TEST(Config, AgreementTellsWhatMustBeEqual) {
  const std::string usual = good({}).agreement();
  const Variables different[] = {{{"HCCL_TRANSPORT", "tcp"}}, {{"HCCL_ALGO", "level1:ring"}},
                                 {{"HCCL_BUFFSIZE", "100"}},  {{"HCCL_DETERMINISTIC", "strict"}},
                                 {{"HCCL_SPLIT", "auto"}},    {{"HCCL_WIRE", "crc"}}};
  for (const Variables& v : different) EXPECT_NE(good(v).agreement(), usual);
  for (const Variables& v : {Variables{{"HCCL_IF_IP", "10.0.0.1"}}, Variables{{"HCCL_LOG", "off"}},
                             Variables{{"HCCL_SOCKET_IFNAME", "eth"}}}) {
    EXPECT_EQ(good(v).agreement(), usual);
  }
}

}  // namespace
}  // namespace hccl
