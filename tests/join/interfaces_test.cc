// Tests the choice of a rank's address, this host's addresses, names and identity, and the secret.
#include "hccl/join/interfaces.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "hccl/base/auth.h"
#include "hccl/join/host.h"
#include "hccl/join/secret.h"
#include "tests/support/folder.h"

namespace hccl::join {
namespace {

int cores_of(const std::string& mask) { return count_cores({&mask, 1}); }

const std::vector<Interface> kHost = {
    {"lo", "127.0.0.1", AF_INET},       {"lo", "::1", AF_INET6},
    {"docker0", "172.17.0.1", AF_INET}, {"enp2", "10.0.2.1", AF_INET},
    {"enp2", "fd00::21", AF_INET6},     {"eth1", "10.0.1.1", AF_INET},
    {"eth0", "10.0.0.1", AF_INET},      {"eth0", "fd00::1", AF_INET6},
};

struct Choice {
  const char* if_ip;
  const char* ifname;
  int family;
  const char* expected;  // "name address", or nothing for kNotFound
};

Result<Interface> choose(const std::vector<Interface>& all, const Choice& c) {
  // Reads the settings from variables, so that the test covers their syntax, too.
  const auto config = Config::read([&](const char* name) -> const char* {
    const std::string_view n = name;
    if (n == "HCCL_IF_IP") return c.if_ip;
    if (n == "HCCL_SOCKET_IFNAME") return c.ifname;
    if (n != "HCCL_SOCKET_FAMILY" || c.family == AF_UNSPEC) return nullptr;
    return c.family == AF_INET ? "AF_INET" : "AF_INET6";
  });
  if (!config.ok()) return config.status();
  return choose_interface(all, config.value());
}

void expect(const std::vector<Interface>& all, const Choice& c) {
  SCOPED_TRACE(std::string(c.if_ip ? c.if_ip : "-") + " " + (c.ifname ? c.ifname : "-"));
  const auto chosen = choose(all, c);
  if (*c.expected == '\0') {
    EXPECT_EQ(chosen.status().code(), Code::kNotFound) << chosen.status().message();
    return;
  }
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  EXPECT_EQ(chosen.value().name + " " + chosen.value().address, c.expected);
}

TEST(Interfaces, Choice) {
  const Choice cases[] = {
      {nullptr, nullptr, AF_UNSPEC, "enp2 10.0.2.1"},  // ordered by name, not by position
      {nullptr, nullptr, AF_INET6, "enp2 fd00::21"},
      // prefixes: the first interface that matches counts, in the system's order and not in the
      // list's
      {nullptr, "eth", AF_UNSPEC, "eth1 10.0.1.1"},
      {nullptr, "eth0,enp", AF_UNSPEC, "enp2 10.0.2.1"},
      {nullptr, "eth", AF_INET6, "eth0 fd00::1"},
      {nullptr, "eth1", AF_INET6, "eth1 10.0.1.1"},  // falls back to the other family
      {nullptr, "docker,lo", AF_UNSPEC, "lo 127.0.0.1"},
      {nullptr, "wlan", AF_UNSPEC, ""},
      // exact names
      {nullptr, "=eth0", AF_UNSPEC, "eth0 10.0.0.1"},
      {nullptr, "=eth", AF_UNSPEC, ""},
      {nullptr, "=eth01", AF_UNSPEC, ""},
      {nullptr, "=lo,eth0", AF_UNSPEC, "lo 127.0.0.1"},
      // excluded names
      {nullptr, "^lo,docker", AF_UNSPEC, "enp2 10.0.2.1"},
      {nullptr, "^lo,docker,enp", AF_UNSPEC, "eth1 10.0.1.1"},
      {nullptr, "^e,lo,docker", AF_UNSPEC, ""},
      {nullptr, "^=lo,docker0,enp2", AF_UNSPEC, "eth1 10.0.1.1"},
      {nullptr, "^=lo,docker,enp", AF_UNSPEC, "docker0 172.17.0.1"},
      // an address takes precedence over everything else
      {"10.0.1.1", "=lo", AF_INET6, "eth1 10.0.1.1"},
      {"fd00:0:0::0021", nullptr, AF_UNSPEC, "enp2 fd00::21"},
      {"10.0.1.1%eth1", nullptr, AF_UNSPEC, "eth1 10.0.1.1"},
      {"10.0.1.1%eth0", nullptr, AF_UNSPEC, ""},
      {"10.0.9.9", nullptr, AF_UNSPEC, ""},
      {"127.0.0.1", nullptr, AF_UNSPEC, "lo 127.0.0.1"},
  };
  for (const Choice& c : cases) expect(kHost, c);
}

TEST(Interfaces, AutomaticChoiceFallsBack) {
  const std::vector<Interface> only_loopback = {{"lo", "127.0.0.1", AF_INET}};
  expect(only_loopback, {nullptr, nullptr, AF_UNSPEC, "lo 127.0.0.1"});
  expect(only_loopback, {nullptr, nullptr, AF_INET6, "lo 127.0.0.1"});
  const std::vector<Interface> docker = {{"lo", "127.0.0.1", AF_INET},
                                         {"docker1", "172.18.0.1", AF_INET},
                                         {"docker0", "172.17.0.1", AF_INET}};
  expect(docker, {nullptr, nullptr, AF_UNSPEC, "docker0 172.17.0.1"});
  // A host that has only IPv6 still has an IPv4 loopback.
  const std::vector<Interface> v6 = {{"lo", "127.0.0.1", AF_INET}, {"eth0", "fd00::1", AF_INET6}};
  expect(v6, {nullptr, nullptr, AF_UNSPEC, "eth0 fd00::1"});
  const std::vector<Interface> link_local = {{"eth0", "169.254.3.4", AF_INET},
                                             {"eth1", "fd00::1", AF_INET6}};
  expect(link_local, {nullptr, nullptr, AF_UNSPEC, "eth1 fd00::1"});
  expect({}, {nullptr, nullptr, AF_UNSPEC, ""});
}

TEST(Interfaces, TheDefaultRouteGoesBeforeTheName) {
  std::vector<Interface> all = {{"br-a1", "172.18.0.1", AF_INET},
                                {"eth0", "10.0.0.1", AF_INET},
                                {"eth1", "10.0.1.1", AF_INET, true},
                                {"eth1", "fd00::1", AF_INET6}};
  expect(all, {nullptr, nullptr, AF_UNSPEC, "eth1 10.0.1.1"});
  expect(all, {nullptr, nullptr, AF_INET6, "eth1 fd00::1"});
  all[2].carrier = all[3].carrier = false;
  expect(all, {nullptr, nullptr, AF_UNSPEC, "br-a1 172.18.0.1"});
  all[0].carrier = false;
  expect(all, {nullptr, nullptr, AF_UNSPEC, "eth0 10.0.0.1"});
  all[1].carrier = false;
  expect(all, {nullptr, "eth1", AF_UNSPEC, "eth1 10.0.1.1"});  // the user's choice
  expect(all, {nullptr, nullptr, AF_UNSPEC, ""});
}

TEST(Interfaces, ErrorsSayWhatThereIs) {
  const auto chosen = choose(kHost, {nullptr, "wlan", AF_UNSPEC, ""});
  for (const char* word : {"HCCL_SOCKET_IFNAME", "wlan", "eth0=10.0.0.1", "lo=::1"}) {
    EXPECT_NE(chosen.status().message().find(word), std::string::npos) << word;
  }
}

TEST(Interfaces, ListsThisHost) {
  const auto all = local_interfaces();
  ASSERT_TRUE(all.ok());
  bool loopback = false;
  for (const Interface& at : all.value()) {
    loopback |= at.address == "127.0.0.1" && at.family == AF_INET;
    EXPECT_FALSE(at.name.empty());
    EXPECT_EQ(at.address.find("fe80:"), std::string::npos);
  }
  EXPECT_TRUE(loopback);
  Config config;
  config.if_ip = "127.0.0.1";
  EXPECT_EQ(local_address(config).value(), "127.0.0.1");
  config.if_ip = "203.0.113.77";  // reserved for documentation
  EXPECT_EQ(local_address(config).status().code(), Code::kNotFound);
}

TEST(Interfaces, AddressesOfThisHost) {
  for (const char* text : {"127.0.0.1", "127.0.0.2", "127.255.0.9", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_local(text)) << text;
  }
  for (const char* text : {"203.0.113.77", "126.255.255.255", "128.0.0.1", "::2", "2001:db8::1",
                           "::7f00:1", "", "localhost", "127.0.0", "127.0.0.1 ", "127.0.0.1:80"}) {
    EXPECT_FALSE(is_local(text)) << text;
  }
}

// A rank connects from the address that the variables choose, if this address can reach the root.
TEST(Interfaces, SourceAddress) {
  Config config;
  EXPECT_EQ(source_address(config, "203.0.113.77").value(), "");
  config.socket_ifname = "=nosuch0";
  EXPECT_EQ(source_address(config, "203.0.113.77").status().code(), Code::kNotFound);
  EXPECT_EQ(source_address(config, "127.0.0.1").value(), "");
  config.socket_ifname = "=lo";
  EXPECT_EQ(source_address(config, "203.0.113.77").value(), "") << "only reaches this host";
  config.socket_ifname = "^docker";
  EXPECT_EQ(source_address(config, "203.0.113.77").value(), "") << "the default route fits";
  config.socket_ifname.clear();
  config.if_ip = "127.0.0.1";
  EXPECT_EQ(source_address(config, "203.0.113.77").value(), "127.0.0.1");
  EXPECT_EQ(source_address(config, "2001:db8::1").value(), "");
  config.if_ip = "203.0.113.77";
  EXPECT_EQ(source_address(config, "203.0.113.78").status().code(), Code::kNotFound);
  config.if_ip = "fe80::1";
  EXPECT_EQ(source_address(config, "2001:db8::1").status().code(), Code::kNotSupport);
}

Result<std::string> resolve_as(const std::string& host, int family) {
  Config config;
  config.socket_family = family;
  return resolve(host, config);
}

TEST(Interfaces, Resolve) {
  EXPECT_EQ(resolve_as("10.1.2.3", AF_UNSPEC).value(), "10.1.2.3");
  EXPECT_EQ(resolve_as("fd00:0::5", AF_INET).value(), "fd00::5");  // there is no other family
  EXPECT_EQ(resolve_as("127.0.0.1", AF_INET6).value(), "127.0.0.1");
  EXPECT_EQ(resolve_as("127.0.1.1", AF_INET).value(), "127.0.1.1");
  const auto loopback = resolve_as("localhost", AF_INET);
  ASSERT_TRUE(loopback.ok()) << loopback.status().message();
  EXPECT_EQ(loopback.value(), "127.0.0.1");
  for (const std::string bad : {"", "no such host", "10.0.0.256.1.1.1.1"}) {
    EXPECT_EQ(resolve_as(bad, AF_UNSPEC).status().code(), Code::kNotFound) << bad;
  }
}

TEST(Host, IdentityAndCores) {
  const HostIdentity identity = host_identity(*boot_id());
  EXPECT_EQ(identity, host_identity(*boot_id()));
  EXPECT_LE(identity.size(), 128u);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  EXPECT_NE(identity.find(boot), std::string::npos);
  struct stat network = {};
  ASSERT_EQ(::stat("/proc/self/ns/net", &network), 0);
  EXPECT_TRUE(identity.ends_with(" " + std::to_string(network.st_ino)));

  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(cores_of(core_mask()), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cores_of(core_mask()), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Cores, AreTakenInTurn) {
  const std::string first = "\x01";
  const std::string second = "\x02";
  const std::string third = "\x04";
  using Masks = std::vector<std::string>;
  using Order = std::vector<int>;
  EXPECT_EQ(cores_in_turn(Masks{first, second, second, first}), (Order{0, 1, 3, 2}));
  EXPECT_EQ(cores_in_turn(Masks{first, first, second, second}), (Order{0, 2, 1, 3}));
  EXPECT_EQ(cores_in_turn(Masks{second, second, first, second}), (Order{2, 0, 1, 3}));
  EXPECT_EQ(cores_in_turn(Masks{first, third, second, third, first}), (Order{0, 2, 1, 4, 3}));
  // The cores of ranks are unknown, or another order of the ranks gains nothing.
  EXPECT_EQ(cores_in_turn(Masks{first, second}), Order());
  EXPECT_EQ(cores_in_turn(Masks{"\x03", "\x03", "\x03"}), Order());
  EXPECT_EQ(cores_in_turn(Masks{"\x03", "\x03", second}), Order());
  EXPECT_EQ(cores_in_turn(Masks{"", ""}), Order());
  EXPECT_EQ(cores_in_turn(Masks{}), Order());
}

class SecretFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text, mode_t mode) const {
    const std::string path = folder_.write("s", text);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static void refuses(const std::string& path, Code code, const char* word) {
    const auto key = read_secret_file(path);
    EXPECT_EQ(key.status().code(), code) << key.status().message();
    EXPECT_NE(key.status().message().find(word), std::string::npos) << key.status().message();
    EXPECT_EQ(key.status().message().find("hunter2"), std::string::npos);
  }
  testing::Folder folder_;
};

TEST_F(SecretFile, GivesTheDigestOfAllBytes) {
  for (const mode_t mode : {0600, 0400}) {
    const std::string secret("hunter2 hunter2\0\n", 17);
    const auto key = read_secret_file(write(secret, mode));
    ASSERT_TRUE(key.ok()) << key.status().message();
    EXPECT_EQ(key.value(), digest(secret));
    EXPECT_NE(key.value(), digest("hunter2 hunter2"));
    ::unlink((folder_ / "s").c_str());
  }
  EXPECT_TRUE(read_secret_file(write(std::string(65535, 'x') + "y", 0600)).ok());
}

TEST_F(SecretFile, RefusesSecretsThatAreEasyToGuess) {
  for (const std::string& secret :
       {std::string("hunter2"), std::string("hunter2 hunter2"), std::string("hunter2 hunter2\r\n"),
        std::string(64, '0'), std::string(64, '0') + "\n", std::string(64, '\0'),
        std::string(64, '\n')}) {
    refuses(write(secret, 0600), Code::kPara, "easy to guess");
  }
  EXPECT_TRUE(read_secret_file(write("hunter2 hunter2!\n", 0600)).ok());
}

TEST_F(SecretFile, RefusesUnsafeFiles) {
  for (const mode_t mode : {0640, 0604, 0660, 0610, 0601, 0602, 0644}) {
    refuses(write("hunter2", mode), Code::kPara, "chmod 600");
  }
  refuses(write("", 0600), Code::kPara, "empty");
  refuses(write(std::string(65537, 'x'), 0600), Code::kPara, "64 KiB");
  write("hunter2", 0600);
  ASSERT_EQ(::symlink((folder_ / "s").c_str(), (folder_ / "t").c_str()), 0);
  refuses(folder_ / "t", Code::kPara, "link");
  ::unlink((folder_ / "t").c_str());
  ASSERT_EQ(::mkfifo((folder_ / "t").c_str(), 0600), 0);
  refuses(folder_ / "t", Code::kPara, "regular");
  refuses(folder_.path(), Code::kPara, "regular");
  refuses(folder_ / "absent", Code::kOpenFileFailure, "opened");
  refuses("", Code::kPara, "name");
  // As root, the test gives the file to another user. Otherwise it takes a file of the system.
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown((folder_ / "s").c_str(), 65534, 65534), 0);
    refuses(folder_ / "s", Code::kPara, "belong");
  } else {
    refuses("/etc/passwd", Code::kPara, "belong");
  }
}

}  // namespace
}  // namespace hccl::join
