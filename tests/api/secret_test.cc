// Tests which processes are allowed to take a rank if only a rank table defines the job.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "hccl/base/auth.h"
#include "hccl/base/socket.h"
#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/join/rank_table.h"
#include "hccl/join/world.h"
#include "tests/support/config.h"
#include "tests/support/folder.h"

namespace hccl::testing {
namespace {

constexpr uid_t kNobody = 65534;

std::string table_of_one_host() {
  return R"({"status": "completed", "version": "1.0", "server_count": "1", "server_list": [
    {"server_id": "test-)" +
         std::to_string(::getpid()) + R"(", "device": [{"device_id": "0", "rank_id": "0"},
                                             {"device_id": "1", "rank_id": "1"}]}]})";
}

std::string table_of(const std::string& first_ip, const std::string& second_ip) {
  const auto server = [](const std::string& ip, int rank) {
    return R"({"server_id": ")" + ip + R"(", "device": [{"device_id": "0", "device_ip": ")" + ip +
           R"(", "rank_id": ")" + std::to_string(rank) + R"("}]})";
  };
  return R"({"status": "completed", "version": "1.0", "server_count": "2", "server_list": [)" +
         server(first_ip, 0) + "," + server(second_ip, 1) + "]}";
}

pid_t start(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return child;
}
int end_of(pid_t child) {
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Returns 0 if this process has joined, and the sum of both ranks is right.
int take_part(const std::string& path, std::uint32_t rank) {
  HcclComm comm = nullptr;
  if (HcclCommInitClusterInfo(path.c_str(), rank, &comm) != HCCL_SUCCESS) return 2;
  float value = static_cast<float>(rank) + 1;
  if (HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr) !=
      HCCL_SUCCESS) {
    return 3;
  }
  HcclCommDestroy(comm);
  return value == 3 ? 0 : 4;
}

// Joins as another user, with everything that this user can read in the table; returns 0 if
// refused.
int intrude(const std::string& table, std::uint16_t port) {
  if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return 1;
  const auto parsed = join::parse_rank_table(table);
  if (!parsed.ok()) return 1;
  const std::string job = "table " + parsed->digest_text + " join 0";
  join::RootInfo info;
  info.address = "127.0.0.1";
  info.port = port;
  info.secret = derive(digest("uid 0"), "job " + job);
  const Key id = derive(info.secret, "id");
  std::memcpy(info.id.data(), id.data(), info.id.size());
  const auto taken = join::World::join(
      std::make_shared<join::Node>(std::make_shared<join::Control>(), info), 2, 1,
      quiet_config("auto", std::chrono::seconds(1)), make_logger("off", "intruder"));
  return taken.ok() ? 2 : 0;
}

TEST(Secret, AnotherUserCannotTakeARank) {
  if (::geteuid() != 0) GTEST_FAIL() << "this test changes its user id: run it as root";
  const Folder folder;
  const std::string table = table_of_one_host();
  const std::string path = folder.write("ranks.json", table);
  auto free_port = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(free_port.ok());
  const std::string port = std::to_string(free_port->port);
  ::setenv("HCCL_IF_BASE_PORT", port.c_str(), 1);
  ::setenv("HCCL_HOST_SOCKET_PORT_RANGE", (port + "-" + port).c_str(), 1);
  const std::uint16_t number = free_port->port;
  free_port->fd.reset();
  const pid_t root = start([&] { return take_part(path, 0); });
  EXPECT_EQ(end_of(start([&] { return intrude(table, number); })), 0);
  EXPECT_EQ(end_of(start([&] { return take_part(path, 1); })), 0);
  EXPECT_EQ(end_of(root), 0);
  ::unsetenv("HCCL_IF_BASE_PORT");
  ::unsetenv("HCCL_HOST_SOCKET_PORT_RANGE");
}

TEST(Secret, JobOnSeveralHostsIsRefusedWithoutOne) {
  const Folder folder;
  // No host has an address of 192.0.2.0/24, which is reserved for documentation.
  const std::string path = folder.write("ranks.json", table_of("127.0.0.1", "192.0.2.1"));
  EXPECT_EQ(end_of(start([&] {
              HcclComm comm = nullptr;
              const bool refused = HcclCommInitClusterInfo(path.c_str(), 0, &comm) == HCCL_E_PARA;
              const std::string text = HcclGetLastErrorText();
              const bool says = text.find("openssl rand") != std::string::npos &&
                                text.find("HCCL_JOB_SECRET_FILE") != std::string::npos;
              return refused && says ? 0 : 2;
            })),
            0);
}

}  // namespace
}  // namespace hccl::testing
