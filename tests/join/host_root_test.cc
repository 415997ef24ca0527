// Ranks of one host find each other's secret, and nobody else does. Other users are processes that
// have changed their user id, for which the test has to be root.
#include "hccl/join/host_root.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "hccl/base/auth.h"
#include "tests/support/folder.h"

namespace hccl::testing {
namespace {

using join::find_host_root;
using join::HostRoot;
using join::RootInfo;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uid_t kNobody = 65534;

Deadline soon() { return Deadline::after(milliseconds(200)); }
Deadline patient() { return Deadline::after(seconds(60)); }

auto create(const std::string& runtime_dir, const std::string& job, Deadline deadline) {
  return HostRoot::create(runtime_dir, job, deadline,
                          [](const auto& make) { return std::make_shared<Fd>(make()); });
}

RootInfo some_root() {
  RootInfo info;
  EXPECT_TRUE(random_bytes(info.secret.data(), info.secret.size()).ok());
  info.address = "127.0.0.1";
  info.port = 4711;
  return info;
}

/// The exit code of a child that runs body; 1 where the user id cannot be changed.
int as_user(uid_t user, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (user != ::geteuid() && (::setgid(user) != 0 || ::setuid(user) != 0)) ::_exit(1);
    ::_exit(body());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// The files of a runtime directory's hccl folder.
std::vector<std::string> files_in(const Folder& runtime) {
  std::vector<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator(runtime / "hccl")) {
    names.push_back(each.path().string());
  }
  return names;
}

TEST(HostRoot, IsFoundByRanksThatComeBeforeAndAfter) {
  const Folder runtime;
  const RootInfo made = some_root();
  Result<RootInfo> early = Status(Code::kTimeout, "");
  std::thread rank([&] { early = find_host_root(runtime.path(), "job", patient()); });
  std::this_thread::sleep_for(milliseconds(50));
  {
    auto root = create(runtime.path(), "job", patient());
    ASSERT_TRUE(root.ok()) << root.status().message();
    ASSERT_TRUE(root->write(made).ok());
    Result<RootInfo> late = find_host_root(runtime.path(), "job", patient());
    rank.join();
    for (const Result<RootInfo>* found : {&early, &late}) {
      ASSERT_TRUE(found->ok()) << found->status().message();
      EXPECT_EQ((*found)->secret, made.secret);
      EXPECT_EQ((*found)->port, made.port);
    }
    const auto other = find_host_root(runtime.path(), "another job", soon());
    EXPECT_EQ(other.status().code(), Code::kTimeout);
    EXPECT_NE(other.status().message().find("HCCL_JOB_SECRET_FILE"), std::string::npos);

    ASSERT_EQ(files_in(runtime).size(), 1u);
    struct stat info = {};
    ASSERT_EQ(::stat(files_in(runtime)[0].c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    ASSERT_EQ(::stat((runtime / "hccl").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
  }
  EXPECT_TRUE(files_in(runtime).empty());
}

TEST(HostRoot, FileOfAKilledJobIsNotReadAndGoes) {
  const Folder runtime;
  const auto leave_a_file = [&](const char* job) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto root = create(runtime.path(), job, patient());
      if (root.ok() && root->write(some_root()).ok()) ::kill(::getpid(), SIGKILL);
      ::_exit(1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(files_in(runtime).size(), 1u);
  };
  leave_a_file("other");
  leave_a_file("job");  // removes the first one
  EXPECT_EQ(find_host_root(runtime.path(), "job", soon()).status().code(), Code::kTimeout);
  const RootInfo made = some_root();
  auto root = create(runtime.path(), "job", patient());
  ASSERT_TRUE(root.ok()) << root.status().message();
  ASSERT_TRUE(root->write(made).ok());
  const auto found = find_host_root(runtime.path(), "job", patient());
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->secret, made.secret);
  EXPECT_EQ(files_in(runtime).size(), 1u);
}

TEST(HostRoot, ALimitOfFilesIsNamed) {
  const Folder runtime;
  for (const rlim_t most : {0, 1, 4000}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit limit{most, most};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
      const auto root = create(runtime.path(), "job", patient());
      const Status status = root.ok() ? root->write(some_root()) : root.status();
      ::_exit(status.message().find("ulimit -f") != std::string::npos ? 0 : 2);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << most;
  }
}

TEST(HostRoot, TwoJobsOfOneNameDoNotMix) {
  const Folder runtime;
  auto first = create(runtime.path(), "job", patient());
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(first->write(some_root()).ok());
  const auto second = create(runtime.path(), "job", soon());
  EXPECT_EQ(second.status().code(), Code::kUnavail) << second.status().message();
  EXPECT_TRUE(find_host_root(runtime.path(), "job", patient()).ok());
}

TEST(HostRoot, AContestConcernsTheProcessesThatLived) {
  const Folder runtime;
  const auto contested = [&](const char* job) { return join::was_contested(runtime.path(), job); };
  EXPECT_FALSE(contested("job"));
  join::remember_contest(runtime.path(), "job");
  EXPECT_TRUE(contested("job"));
  EXPECT_FALSE(contested("another job"));
  std::this_thread::sleep_for(milliseconds(50));  // start times have 10 ms
  EXPECT_EQ(as_user(::geteuid(), [&] { return contested("job") ? 2 : 0; }), 0);
  // Another job's root does not forget it.
  EXPECT_TRUE(create(runtime.path(), "another job", patient()).ok());
  EXPECT_TRUE(contested("job"));
}

TEST(HostRoot, OtherUsersNeitherReadNorMeetNorPretend) {
  if (::geteuid() != 0) GTEST_FAIL() << "this test changes its user id: run it as root";
  const Folder runtime;
  auto root = create(runtime.path(), "job", patient());
  ASSERT_TRUE(root.ok()) << root.status().message();
  ASSERT_TRUE(root->write(some_root()).ok());
  const std::string file = files_in(runtime)[0];
  EXPECT_EQ(as_user(kNobody,
                    [&] {
                      if (::access(file.c_str(), R_OK) == 0) return 2;
                      // root's variable, kept by su.
                      const auto found = find_host_root(runtime.path(), "job", soon());
                      return found.ok() ? 3 : 0;
                    }),
            0);

  // A file under root's name that nobody made, and locks: neither read nor taken for a job's.
  const Folder open_to_all;
  const std::string folder = open_to_all / "hccl";
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  ASSERT_EQ(::chown(folder.c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  for (const auto& status : {create(open_to_all.path(), "job", soon()).status(),
                             find_host_root(open_to_all.path(), "job", soon()).status()}) {
    EXPECT_EQ(status.code(), Code::kPara);
    EXPECT_NE(status.message().find("belongs to another user"), std::string::npos)
        << status.message();
  }
}

TEST(HostRoot, FolderThatIsALinkIsRefused) {
  const Folder runtime;
  const Folder elsewhere;
  std::filesystem::create_directory_symlink(elsewhere.path(), runtime / "hccl");
  EXPECT_EQ(create(runtime.path(), "job", soon()).status().code(), Code::kPara);
}

}  // namespace
}  // namespace hccl::testing
