// Rank tables: the meaning of each layout, every rule that can be broken, and hostile text.
#include "hccl/join/rank_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>

#include "hccl/join/json_text.h"
#include "tests/join/rank_table_fixtures.h"
#include "tests/support/folder.h"

namespace hccl::join {
namespace {

using test::kTable10;
using test::kTable11;
using test::kTable12;
using test::kTableCloud;
using test::kTableHostMode;
using test::kTableLab;
using test::kTableOneServer;
using test::kTables;

std::string quoted(std::string text) {
  std::replace(text.begin(), text.end(), '\'', '"');
  return text;
}

// Returns the text with one part replaced. In `from` and `to` an apostrophe stands for a quotation
// mark.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(quoted(from));
  EXPECT_NE(at, std::string::npos) << "the fixture does not have " << from;
  if (at != std::string::npos) text.replace(at, from.size(), quoted(to));
  return text;
}

// "rank server device address port pod" of each rank.
std::vector<std::string> lines(const Result<RankTable>& table) {
  EXPECT_TRUE(table.ok()) << table.status().message();
  std::vector<std::string> out;
  if (!table.ok()) return out;
  for (const RankEntry& e : table.value().ranks) {
    out.push_back(std::to_string(e.rank) + " " + e.server_id + " " + std::to_string(e.device) +
                  " " + (e.address.empty() ? "-" : e.address) + " " + std::to_string(e.port) +
                  (e.pod.empty() ? "" : " " + e.pod));
  }
  return out;
}

using TableLines = std::vector<std::string>;

TEST(RankTable, Version10PrefersHostAddressAndPort) {
  EXPECT_EQ(lines(parse_rank_table(kTable10)),
            (TableLines{"0 node-a 0 192.168.1.8 17000", "1 node-b 0 10.0.0.2 17000",
                        "2 node-a 1 192.168.1.9 0", "3 node-b 5 10.0.0.2 18001"}));
  EXPECT_EQ(parse_rank_table(kTable10).value().version, "1.0");
}

TEST(RankTable, HostModeDropsPortsThatDoNotTellRanksApart) {
  EXPECT_EQ(lines(parse_rank_table(kTableHostMode)),
            (TableLines{"0 a 0 fd00::1 0", "1 a 1 fd00::1 0", "2 b 0 fd00::2 17000",
                        "3 b 1 fd00::2 17001"}));
}

TEST(RankTable, OneServerNeedsNoAddress) {
  EXPECT_EQ(lines(parse_rank_table(kTableOneServer)),
            (TableLines{"0 10.1.1.1 0 10.1.1.1 0", "1 10.1.1.1 1 10.1.1.1 0"}));
  EXPECT_EQ(lines(parse_rank_table(replaced(kTableOneServer, "10.1.1.1", "here"))),
            (TableLines{"0 here 0 - 0", "1 here 1 - 0"}));
}

// A server's id that is an address is preferred: hosts may not have the network of the devices.
TEST(RankTable, AServerThatIsAnAddressGoesBeforeItsDevices) {
  EXPECT_EQ(lines(parse_rank_table(replaced(kTable10, "node-a", "10.0.0.1"))),
            (TableLines{"0 10.0.0.1 0 10.0.0.1 17000", "1 node-b 0 10.0.0.2 17000",
                        "2 10.0.0.1 1 10.0.0.1 0", "3 node-b 5 10.0.0.2 18001"}));
  EXPECT_EQ(lines(parse_rank_table(replaced(kTable10, "node-b", "10.7.7.7")))[1],
            "1 10.7.7.7 0 10.0.0.2 17000");  // this device has a host_ip
  EXPECT_EQ(lines(parse_rank_table(replaced(kTableLab, "'s2'", "'10.9.9.9'")))[1],
            "1 10.9.9.9 0 10.9.9.9 0");
}

TEST(RankTable, Version12) {
  EXPECT_EQ(lines(parse_rank_table(kTable12)),
            (TableLines{"0 a 0 10.0.0.1 0", "1 b 0 10.0.0.2 0", "2 c 0 10.0.0.3 0"}));
}

TEST(RankTable, Version11HasHostProcesses) {
  EXPECT_EQ(lines(parse_rank_table(kTable11)),
            (TableLines{"0 10.0.0.1 -1 10.0.0.1 0", "1 10.0.0.1 -1 10.9.0.1 60100",
                        "2 10.0.0.2 3 10.0.0.2 60100", "3 10.0.0.2 4 10.0.0.2 60101"}));
}

TEST(RankTable, LegacyCloudCountsRanksByServerNameThenDevice) {
  EXPECT_EQ(lines(parse_rank_table(kTableCloud)),
            (TableLines{"0 host10 0 - 0 pod-m", "1 host10 7 10.0.0.7 0 pod-m",
                        "2 host9 1 10.0.0.6 0 pod-a", "3 host9 2 10.0.0.5 0 pod-z"}));
  EXPECT_EQ(parse_rank_table(kTableCloud).value().version, "");
}

TEST(RankTable, LegacyLabMergesGroups) {
  EXPECT_EQ(lines(parse_rank_table(kTableLab)),
            (TableLines{"0 s1 0 10.0.0.1 0", "1 s2 0 10.0.0.3 0", "2 s1 1 10.0.0.2 0",
                        "3 s3 0 10.0.0.4 0"}));
}

TEST(RankTable, AcceptsWhatTheRulesAllow) {
  const struct {
    const char* fixture;
    std::string from;
    std::string to;
  } cases[] = {
      {kTable10, "'server_count': '2',", ""},
      {kTable10, "'reserve'", "7"},  // an ignored key
      {kTable10, "'version'", "'note': null, 'version'"},
      {kTable10, "'completed'", "'initializing'"},  // only an incomplete file is read again
      {kTable10, "'17000'", "'65535'"},
      {kTable10, "node-b", std::string(64, 'x')},
      {kTable10, "'rdma'", "'tcp'"},
      {kTableOneServer, "'rank_id': '0'", "'rank_id': '00'"},
      {kTableOneServer, "'device_id': '1', 'device_ip': '',", "'device_id': '1',"},
      {kTable12, "'super_device_id': '1',", ""},
      {kTable11, "'mode': 'tcp',", ""},
      {kTable11, "job-7", ""},
  };
  for (const auto& c : cases) {
    const auto table = parse_rank_table(replaced(c.fixture, c.from, c.to));
    EXPECT_TRUE(table.ok()) << c.from << " -> " << c.to << ": " << table.status().message();
  }
}

// A change that breaks a rule of a valid table, and words of the error text (here, too, ' for ").
struct Broken {
  std::string from;
  std::string to;
  std::vector<std::string> words;
  Code code = Code::kPara;
};

void refuses(const char* fixture, const std::vector<Broken>& cases) {
  for (const Broken& c : cases) {
    SCOPED_TRACE(c.from + " -> " + c.to);
    const auto table = parse_rank_table(replaced(fixture, c.from, c.to));
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(table.status().code(), c.code) << table.status().message();
    for (const std::string& word : c.words) {
      EXPECT_NE(table.status().message().find(quoted(word)), std::string::npos)
          << "no " << word << " in: " << table.status().message();
    }
  }
}

const std::vector<Broken> kBroken10 = {
    {"'status'", "'state'", {"EI0017", "status"}},
    {"'completed'", "true", {"EI0017", "status"}},
    {"'1.0'", "1.0", {"EI0017", "version"}},
    {"'1.0'", "'2.0'", {"2.0", "NPU"}, Code::kNotSupport},
    {"'1.0'", "'1.3'", {"1.3", "version"}, Code::kNotSupport},
    {"'1.0'", "''", {"version"}, Code::kNotSupport},
    {"{", "{ // no\n", {"EI0004", "line 1"}},
    {"'version'", "'status': 'x', 'version'", {"EI0004", "'status' twice"}},
    {"'version'", "'x': 1, 'x': 2, 'version'", {"EI0004", "twice"}},
    {"'server_count': '2'", "'server_count': '3'", {"EI0014", "'3'", "server_count", "2"}},
    {"'server_count': '2'", "'server_count': '0'", {"EI0014", "'0'", "server_count"}},
    {"'server_count': '2'", "'server_count': 2", {"EI0017", "server_count", "a number", "string"}},
    {"'server_list'", "'servers'", {"EI0017", "server_list", "missing"}},
    {"'version'", "'server_list': {}, 'a': 1, 'version'", {"twice"}},
    {"'server_id': 'node-a'", "'id': 'node-a'", {"EI0017", "server_list[0].server_id"}},
    {"node-a", "", {"EI0014", "server_list[0].server_id"}},
    {"node-a", std::string(65, 'x'), {"EI0014", "1 to 64"}},
    {"node-a", "node\\na", {"EI0014", "'node?a'"}},
    {"node-b", "node-a", {"EI0014", "'node-a'", "server_list[1].server_id"}},
    {"10.0.0.2", "10.0.0.256", {"EI0014", "10.0.0.256", "server_list[1].host_ip"}},
    {"10.0.0.2", "10.0.0.2\\u0000x", {"EI0014", "host_ip"}},
    {"10.0.0.2", "0.0.0.0", {"EI0014", "host_ip"}},
    {"'device': [", "'devices': [", {"EI0017", "server_list[0].device"}},
    {"'device_id': '0'", "'id': '0'", {"EI0017", "server_list[0].device[0].device_id"}},
    {"'device_id': '0'", "'device_id': 0", {"EI0017", "device[0].device_id", "a number"}},
    {"'device_id': '1'", "'device_id': '1024'", {"EI0014", "1024", "device[1].device_id"}},
    {"'device_id': '1'", "'device_id': '-1'", {"EI0014", "'-1'", "device_id"}},
    {"'device_id': '1'", "'device_id': '0'", {"EI0014", "'0'", "device[1].device_id", "node-a"}},
    {"'rank_id': '2'", "'rank': '2'", {"EI0017", "server_list[0].device[1].rank_id"}},
    {"'rank_id': '2'", "'rank_id': ' 2'", {"EI0014", "' 2'", "rank_id"}},
    {"'rank_id': '2'", "'rank_id': '+2'", {"EI0014", "rank_id"}},
    {"'rank_id': '2'", "'rank_id': '1'", {"EI0014", "rank_id", "'1'"}},
    {"'rank_id': '3'", "'rank_id': '4'", {"EI0014", "'4'", "rank_id", "0 to 3"}},
    {"'rank_id': '3'", "'rank_id': '99999999999999999999'", {"EI0014", "rank_id"}},
    {"'device_ip': '192.168.1.9',",
     "",
     {"EI0014", "server_list[0].device[1].device_ip", "several servers", "add host_ip"}},
    {"192.168.1.9", "192.168.1", {"EI0014", "'192.168.1'", "device[1].device_ip"}},
    {"192.168.1.9", "192.168.1.9,", {"EI0014", "device_ip"}},
    {"192.168.2.9",
     "192.168.1.8",
     {"EI0014", "192.168.1.8", "server_list[1].device[1].device_ip", "no other"}},
    {"192.168.2.9",
     "192.168.2.9,192.168.2.10",
     {"EI0014", "server_list[1].device[1].device_ip", "1 addresses"}},
    {"192.168.2.9", "fd00::9", {"EI0014", "fd00::9", "one family"}},
    {"'17000'", "'0'", {"EI0014", "device_port"}},
    {"'17000'", "'65536'", {"EI0014", "65536", "device[0].device_port", "1 to 65535"}},
    {"'17000'", "17000", {"EI0017", "device_port"}},
    {"'16667'", "'0'", {"EI0014", "device_vnic_port"}},
    {"'16668'", "'0'", {"EI0014", "backup_device_port"}},
    {"192.168.3.1", "x", {"EI0014", "backup_device_ip"}},
    {"'18001'", "'0'", {"EI0014", "host_port"}},
    {"'device_port': '17000', 'rank_id': '1'",
     "'host_port': '18001', 'rank_id': '1'",
     {"EI0014", "18001", "server_list[1].device[1].host_port"}},
    {"'rdma'", "'RDMA'", {"EI0014", "RDMA", "net_protocol", "tcp"}},
    {"'rank_id': '1'",
     "'rank_id': '1', 'net_position': 'host'",
     {"EI0014", "host_ip of server node-a"}},
};

const std::vector<Broken> kBroken12 = {
    {"'super_device_id': '1'", "'super_device_id': 'x'", {"EI0014", "super_device_id"}},
    {"'super_device_id': '1'",
     "'super_device_id': '0'",
     {"EI0014", "server_list[1].device[0].super_device_id"}},
    {"'p0'", "''", {"EI0014", "super_pod_list[0].super_pod_id"}},
    {"'p1'", "'p0'", {"EI0014", "super_pod_list[1].super_pod_id"}},
    {"[{'server_id': 'c'}]",
     "[{'server_id': 'd'}]",
     {"EI0014", "'d'", "super_pod_list[1].server_list[0]"}},
    {"[{'server_id': 'c'}]",
     "[{'server_id': 'a'}]",
     {"EI0014", "'a'", "super_pod_list[1].server_list[0]"}},
    {"{'server_id': 'a'}, ", "", {"EI0014", "2 servers", "super_pod_list", "3 servers"}},
    {"'super_pod_list'", "'super_pod_list': [], 'old_list'", {"EI0014", "super_pod_list"}},
};

const std::vector<Broken> kBroken11 = {
    {"'collective_id'", "'collective'", {"EI0017", "collective_id"}},
    {"job-7", std::string(128, 'x'), {"EI0014", "collective_id", "127"}},
    {"'tcp'", "'udp'", {"EI0014", "udp", "mode"}},
    {"'node_list'", "'nodes'", {"EI0017", "node_list"}},
    {"'10.0.0.2'", "'host2'", {"EI0014", "host2", "node_list[1].node_addr"}},
    {"'10.0.0.2'", "''", {"EI0014", "node_addr"}},
    {"'10.0.0.2'", "'10.0.0.1'", {"EI0014", "10.0.0.1", "node_list[1].node_addr"}},
    {"'ranks': [", "'ranks': [], 'old': [", {"EI0014", "node_list[0].ranks"}},
    {"{'rank_id': '0'}", "'0'", {"EI0017", "node_list[0].ranks[0]", "an object"}},
    {"'rank_id': '0'", "'rank_id': 0", {"EI0017", "node_list[0].ranks[0].rank_id"}},
    {"'device_id': '4'", "'device_id': '3'", {"EI0014", "node_list[1].ranks[1].device_id"}},
    {"60101", "60100", {"EI0014", "60100", "node_list[1].ranks[1].port"}},
    {"60101", "0", {"EI0014", "port"}},
    {"10.9.0.1", "10.9.0", {"EI0014", "rank_ip"}},
};

const std::vector<Broken> kBrokenCloud = {
    {"'group_count'", "'groups'", {"EI0017", "group_count"}},
    {"'group_count': '1'", "'group_count': '0'", {"EI0014", "group_count"}},
    {"'group_list'", "'group_list': [], 'old'", {"EI0014", "group_list"}},
    {"'group_name'", "'name'", {"EI0017", "group_list[0].group_name"}},
    {"'instance_count': '3'", "'instance_count': '2'", {"EI0014", "instance_count", "3"}},
    {"'device_count': '4'", "'device_count': '3'", {"EI0014", "device_count", "4"}},
    {"'device_count'", "'devices'", {"EI0017", "device_count"}},
    {"'pod_name': 'pod-z'", "'pod': 'pod-z'", {"EI0017", "instance_list[0].pod_name"}},
    {"pod-a", "pod-z", {"EI0014", "pod-z", "instance_list[1].pod_name"}},
    {"host10", "", {"EI0014", "server_id"}},
    {"'devices'", "'device'", {"EI0017", "instance_list[0].devices"}},
    {"'device_id': '7'", "'device_id': '8'", {"EI0014", "'8'", "device_id", "0 to 7"}},
    {"'device_id': '1'",
     "'device_id': '2'",
     {"EI0014", "instance_list[1].devices[0].device_id", "host9"}},
    {", 'device_ip': '10.0.0.5'", "", {"EI0017", "device_ip"}},
    {"10.0.0.6", "10.0.0.5", {"EI0014", "10.0.0.5", "device_ip"}},
};

const std::vector<Broken> kBrokenLab = {
    {"'group_count': '2'", "'group_count': '1'", {"EI0014", "group_count", "2"}},
    {"'g1'", "'g0'", {"EI0014", "'g0'", "group_list[1].group_name"}},
    {"'rank_id': '0'", "'rank': '0'", {"EI0017", "instance_list[0].rank_id"}},
    {"{'device_id': '0', 'device_ip': '10.0.0.1'}",
     "{'device_id': '0', 'device_ip': '10.0.0.1'}, {'device_id': '2'}",
     {"EI0014", "2 devices", "instance_list[0].devices"}},
    {"10.0.0.1", "", {"EI0014", "device_ip"}},
    {"'device_num': '2'", "'device_num': '4'", {"EI0014", "device_num", "2"}},
    {"'server_num': '1'", "'server_num': '2'", {"EI0014", "server_num", "1"}},
    {"'s2'", "'s1'", {"EI0014", "group_list[1].instance_list[0].devices[0].device_id", "s1"}},
    {"'para_plane_nic_location'", "'location'", {"EI0017", "para_plane_nic_location"}},
    {"'para_plane_nic_location': 'device'",
     "'para_plane_nic_location': 'host'",
     {"EI0014", "'host'", "para_plane_nic_location"}},
    {"'rank_id': '3'", "'rank_id': '0'", {"EI0014", "rank_id"}},
};

TEST(RankTable, RefusesEveryBrokenRule) {
  refuses(kTable10, kBroken10);
  refuses(kTableOneServer, {{"}]}]\n}", "}]}]}}", {"EI0004"}}});
  refuses(kTableHostMode,
          {{"'host_ip': 'fd00:0:0::2',", "", {"EI0014", "server_list[1].device[0].device_ip"}}});
  refuses(kTable12, kBroken12);
  refuses(kTable11, kBroken11);
  refuses(kTableCloud, kBrokenCloud);
  refuses(kTableLab, kBrokenLab);
}

TEST(RankTable, LabNeedsAUsualNumberOfDevicesPerServer) {
  const auto table = [](int devices) {
    std::string list;
    for (int i = 0; i < devices; ++i) {
      const std::string n = std::to_string(i);
      list += std::string(i == 0 ? "" : ",") + R"({"server_id": "s", "rank_id": ")" + n +
              R"(", "devices": [{"device_id": ")" + n + R"(", "device_ip": "10.0.0.)" +
              std::to_string(i + 1) + "\"}]}";
    }
    const std::string count = std::to_string(devices);
    return parse_rank_table(
        R"({"status": "completed", "deploy_mode": "lab", "para_plane_nic_location": "device",
            "group_count": "1", "group_list": [{"group_name": "", "server_num": "1",
            "device_num": ")" +
        count + R"(", "instance_count": ")" + count + R"(", "instance_list": [)" + list + "]}]}");
  };
  for (const int devices : {1, 2, 4, 8}) EXPECT_TRUE(table(devices).ok()) << devices;
  for (const int devices : {3, 5, 6, 7}) {
    EXPECT_EQ(table(devices).status().code(), Code::kPara) << devices;
    EXPECT_NE(table(devices).status().message().find("device_num"), std::string::npos);
  }
}

TEST(RankTable, RefusesWhatIsNoTable) {
  for (const char* text : {"", " ", "null", "[]", "\"completed\"", "0", "{", "{}}", "{\"a\":}",
                           "{\"status\":\"\xff\"}", "{'status': 'completed'}"}) {
    const auto table = parse_rank_table(text);
    EXPECT_EQ(table.status().code(), Code::kPara) << text;
    EXPECT_NE(table.status().message().find("EI0004"), std::string::npos) << text;
  }
}

TEST(RankTable, CapsSizeDepthValuesAndRanks) {
  const auto says = [](const std::string& text, const char* word) {
    const auto table = parse_rank_table(text);
    EXPECT_EQ(table.status().code(), Code::kPara);
    EXPECT_NE(table.status().message().find(word), std::string::npos) << table.status().message();
  };
  std::string padded = kTableOneServer;
  padded.append((std::size_t{40} << 20) - padded.size(), ' ');
  EXPECT_TRUE(parse_rank_table(padded).ok());
  says(padded + " ", "more than the 41943040 allowed");

  const auto nested = [](int levels) {
    return replaced(kTableOneServer, "{",
                    "{\"x\": " + std::string(static_cast<std::size_t>(levels), '[') +
                        std::string(static_cast<std::size_t>(levels), ']') + ",");
  };
  EXPECT_TRUE(parse_rank_table(nested(15)).ok());
  says(nested(16), "deeper than 16");
  says(std::string(1 << 20, '['), "deeper than 16");
  std::string many = "[0";
  for (int i = 0; i < (1 << 20); ++i) many += ",0";
  says(many + "]", "more than 1048576 values");

  std::string ranks;
  for (std::size_t i = 0; i <= kRankTableRanks; ++i) {
    const std::string n = std::to_string(i);
    if (i == kRankTableRanks) {
      says(
          "{\"status\":\"\",\"version\":\"1.1\",\"collective_id\":\"\",\"node_list\":["
          "{\"node_addr\":\"::1\",\"ranks\":[" +
              ranks + ",{\"rank_id\":\"0\"}]}]}",
          "at most 32768 ranks");
      const auto full = parse_rank_table(
          "{\"status\":\"\",\"version\":\"1.1\",\"collective_id\":\"\",\"node_list\":["
          "{\"node_addr\":\"::1\",\"ranks\":[" +
          ranks + "]}]}");
      ASSERT_TRUE(full.ok()) << full.status().message();
      EXPECT_EQ(full.value().ranks.size(), kRankTableRanks);
    }
    ranks += (i == 0 ? "{\"rank_id\":\"" : ",{\"rank_id\":\"") + n + "\"}";
  }
}

TEST(RankTable, DigestTellsMeaningNotLayout) {
  const RankTable table = parse_rank_table(kTable10).value();
  const RankTable spaced =
      parse_rank_table(replaced(kTable10, "'version'", "\n 'note': 1, 'version'")).value();
  EXPECT_EQ(table.digest_text, spaced.digest_text);
  const char* changes[][2] = {{"node-a", "node-c"},
                              {"192.168.1.8", "192.168.1.7"},
                              {"'device_id': '5'", "'device_id': '6'"},
                              {"18001", "18002"},
                              {"10.0.0.2", "10.0.0.3"}};
  for (const auto& [from, to] : changes) {
    const auto changed = parse_rank_table(replaced(kTable10, from, to));
    ASSERT_TRUE(changed.ok()) << changed.status().message();
    EXPECT_NE(changed.value().digest_text, table.digest_text) << to;
  }
  const auto pods = parse_rank_table(replaced(kTable12, "'p1'", "'p2'"));
  EXPECT_NE(pods.value().digest_text, parse_rank_table(kTable12).value().digest_text);
  const auto cloud = parse_rank_table(replaced(kTableCloud, "pod-a", "pod-b"));
  EXPECT_NE(cloud.value().digest_text, parse_rank_table(kTableCloud).value().digest_text);
}

TEST(RankTable, SurvivesTruncationAtEveryByte) {
  for (const std::string table : kTables) {
    const auto whole = parse_rank_table(table);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    for (std::size_t size = 0; size < table.size(); ++size) {
      // An exact copy, so that the address sanitizer finds a read past the end.
      const std::vector<char> cut(table.begin(), table.begin() + static_cast<long>(size));
      const auto parsed = parse_rank_table(std::string_view(cut.data(), cut.size()));
      EXPECT_FALSE(parsed.ok()) << size;
      EXPECT_FALSE(parsed.status().message().empty());
    }
  }
}

TEST(RankTable, SurvivesFlippedBytes) {
  std::mt19937 random(20240607);
  int accepted = 0;
  for (const std::string table : kTables) {
    for (int round = 0; round < 4000; ++round) {
      std::string broken = table;
      const int flips = 1 + static_cast<int>(random() % 3);
      for (int i = 0; i < flips; ++i) {
        broken[random() % broken.size()] = static_cast<char>(random() & 0xff);
      }
      const auto parsed = parse_rank_table(broken);
      if (!parsed.ok()) {
        EXPECT_FALSE(parsed.status().message().empty());
        EXPECT_LT(parsed.status().message().size(), 600u);
        continue;
      }
      ++accepted;
      for (std::size_t r = 0; r < parsed.value().ranks.size(); ++r) {
        EXPECT_EQ(parsed.value().ranks[r].rank, static_cast<int>(r));
      }
    }
  }
  EXPECT_GT(accepted, 0);  // changes of ignored keys are accepted
}

TEST(OwnRank, Digits) {
  const RankTable table = parse_rank_table(kTable10).value();
  EXPECT_EQ(own_rank(table, "0").value(), 0);
  EXPECT_EQ(own_rank(table, "3").value(), 3);
  for (const char* bad : {"", "4", "-1", "+1", " 1", "1 ", "0x1", "node-a", "99999999999"}) {
    const auto rank = own_rank(table, bad);
    EXPECT_EQ(rank.status().code(), Code::kPara) << bad;
    EXPECT_NE(rank.status().message().find("RANK_ID"), std::string::npos);
  }
}

TEST(OwnRank, PodNames) {
  const RankTable table = parse_rank_table(kTableCloud).value();
  EXPECT_EQ(own_rank(table, "pod-a").value(), 2);
  EXPECT_EQ(own_rank(table, "pod-z").value(), 3);
  EXPECT_EQ(own_rank(table, "pod-z", 2).value(), 3);
  EXPECT_EQ(own_rank(table, "pod-m", 0).value(), 0);
  EXPECT_EQ(own_rank(table, "pod-m", 7).value(), 1);
  EXPECT_EQ(own_rank(table, "pod-m").status().code(), Code::kPara);
  EXPECT_EQ(own_rank(table, "pod-m", 1).status().code(), Code::kUnavail);
  EXPECT_EQ(own_rank(table, "pod-z", 1).value(), 3);  // its only device
  EXPECT_EQ(own_rank(table, "0").status().code(), Code::kUnavail);
  EXPECT_EQ(own_rank(table, "").status().code(), Code::kUnavail);
}

class RankTableFile : public ::testing::Test {
 protected:
  static Deadline soon() { return Deadline::after(std::chrono::milliseconds(30)); }
  testing::Folder folder_;
};

TEST_F(RankTableFile, ReadsACompletedTable) {
  const auto table = read_rank_table(folder_.write("t.json", kTable10), soon());
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ(table.value().digest_text, parse_rank_table(kTable10).value().digest_text);
  ASSERT_EQ(::symlink((folder_ / "t.json").c_str(), (folder_ / "link.txt").c_str()), 0);
  EXPECT_TRUE(read_rank_table(folder_ / "link.txt", soon()).ok());
}

TEST_F(RankTableFile, RefusesPaths) {
  folder_.write("t.txt", kTable10);
  ASSERT_EQ(::symlink((folder_ / "t.txt").c_str(), (folder_ / "link.json").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ / "pipe.json").c_str(), 0600), 0);
  const std::string longest = "/" + std::string(4090, 'x') + ".json";
  for (const std::string& path :
       {std::string(), folder_ / "t.txt", folder_ / "absent.json", folder_ / "link.json",
        folder_ / "pipe.json", longest, std::string("/tmp/x\0.json", 12)}) {
    const auto table = read_rank_table(path, soon());
    EXPECT_EQ(table.status().code(), Code::kPara) << path;
    EXPECT_NE(table.status().message().find("EI0004"), std::string::npos)
        << table.status().message();
    EXPECT_LT(table.status().message().size(), 512u);
  }
  const auto pipe = read_rank_table(folder_ / "pipe.json", soon());
  EXPECT_NE(pipe.status().message().find("not a regular file"), std::string::npos);
}

TEST_F(RankTableFile, WaitsForCompletion) {
  // While the status is not "completed", no other key is checked: the lists may be empty.
  const std::string path = folder_.write(
      "t.json", "{\"status\": \"initializing\", \"version\": \"1.0\", \"server_list\": []}");
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    folder_.write("new", kTable10);
    std::rename((folder_ / "new").c_str(), path.c_str());
  });
  const auto table = read_rank_table(path, Deadline::after(std::chrono::minutes(1)));
  writer.join();
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ(table.value().ranks.size(), 4u);
}

TEST_F(RankTableFile, GivesUpAtTheDeadline) {
  const std::string path = folder_.write("t.json", replaced(kTable10, "completed", "initializing"));
  const auto start = std::chrono::steady_clock::now();
  const auto table = read_rank_table(path, Deadline::after(std::chrono::milliseconds(300)));
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(table.status().code(), Code::kTimeout);
  EXPECT_NE(table.status().message().find("EI0004"), std::string::npos);
  EXPECT_GE(took, std::chrono::milliseconds(300));
}

TEST_F(RankTableFile, FailsAtOnceWhereWaitingDoesNotHelp) {
  const std::string texts[] = {
      "{\"status\": \"initializing\"", "", "{\"version\": \"1.0\", \"server_list\": []}",
      "{\"status\": 0, \"version\": \"1.0\"}", replaced(kTable10, "\"1.0\"", "\"2.0\"")};
  for (const std::string& text : texts) {
    const auto table =
        read_rank_table(folder_.write("t.json", text), Deadline::after(std::chrono::seconds(60)));
    EXPECT_FALSE(table.ok());
    EXPECT_NE(table.status().code(), Code::kTimeout) << text;
    EXPECT_NE(table.status().message().find("t.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace hccl::join
