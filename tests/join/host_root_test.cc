// Ranks of one host find their job's secret, and other users do not. Other users are processes that
// have changed their user id, so the test must run as root.
#include "hccl/join/host_root.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "hccl/base/random.h"
#include "tests/support/folder.h"

namespace hccl::testing {
namespace {

using join::HostRoot;
using join::RootInfo;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uid_t kNobody = 65534;

Deadline soon() { return Deadline::after(milliseconds(200)); }
Deadline patient() { return Deadline::after(seconds(60)); }

auto create(const std::string& place, const std::string& job, Deadline deadline) {
  return HostRoot::create({place}, job, deadline,
                          [](const auto& make) { return std::make_shared<Fd>(make()); });
}
auto find_host_root(const std::string& place, const std::string& job, Deadline deadline) {
  return join::find_host_root({place}, job, deadline);
}

std::string plain_name(uid_t user = ::geteuid()) { return "hccl-" + std::to_string(user); }

RootInfo some_root() {
  RootInfo info;
  EXPECT_TRUE(random_bytes(info.secret.data(), info.secret.size()).ok());
  info.address = "127.0.0.1";
  info.port = 4711;
  return info;
}

/// Runs body in a child as another user, and returns the child's exit code; 1 if the user id cannot
/// be changed.
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

/// The files in this user's folder with the plain name.
std::vector<std::string> files_in(const Folder& runtime) {
  std::vector<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator(runtime / plain_name())) {
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
    ASSERT_EQ(::stat((runtime / plain_name()).c_str(), &info), 0);
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
  leave_a_file("job");  // removes the other job's file
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
  const auto contested = [&](const char* job) {
    return join::was_contested({runtime.path()}, job);
  };
  EXPECT_FALSE(contested("job"));
  join::remember_contest({runtime.path()}, "job");
  EXPECT_TRUE(contested("job"));
  EXPECT_FALSE(contested("another job"));
  std::this_thread::sleep_for(milliseconds(50));  // start times have a resolution of 10 ms
  EXPECT_EQ(as_user(::geteuid(), [&] { return contested("job") ? 2 : 0; }), 0);
  // The root of another job does not remove the contest's record.
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
                      const auto found = find_host_root(runtime.path(), "job", soon());
                      return found.ok() ? 3 : 0;
                    }),
            0);

  // Another user's living rank 0 has a file in a folder with this user's name: it must not be read.
  const Folder shared;
  ASSERT_EQ(::chmod(shared.path().c_str(), 01777), 0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    const auto theirs = create(shared.path(), "job", patient());
    const bool made = theirs.ok() && theirs->write(some_root()).ok();
    if (made && ::write(ready[1], "+", 1) == 1) ::pause();
    ::_exit(2);
  }
  char sign = 0;
  ::close(ready[1]);
  EXPECT_EQ(::read(ready[0], &sign, 1), 1);
  ::close(ready[0]);
  std::filesystem::rename(shared / plain_name(kNobody), shared / (plain_name() + "-abcdef"));
  EXPECT_EQ(find_host_root(shared.path(), "job", soon()).status().code(), Code::kTimeout);
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
}

/// Each function takes the name of this user's folder, as another user can do.
const std::function<void(const std::string& name)> kTakings[] = {
    [](const std::string& name) {
      ASSERT_TRUE(std::filesystem::create_directory(name));
      ASSERT_EQ(::chown(name.c_str(), kNobody, kNobody), 0);
      ASSERT_EQ(::chmod(name.c_str(), 0700), 0);
    },
    [](const std::string& name) {  // everybody may enter this folder
      ASSERT_TRUE(std::filesystem::create_directory(name));
      ASSERT_EQ(::chmod(name.c_str(), 0755), 0);
    },
    [](const std::string& name) { std::filesystem::create_directory_symlink("/tmp", name); },
    [](const std::string& name) { ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0); },
};

TEST(HostRoot, ATakenNameStopsNobody) {
  if (::geteuid() != 0) GTEST_FAIL() << "this test gives a folder away: run it as root";
  for (const auto& take : kTakings) {
    const Folder place;
    take(place / plain_name());
    const RootInfo made = some_root();
    Result<RootInfo> early = Status(Code::kTimeout, "");
    std::thread rank([&] { early = find_host_root(place.path(), "job", patient()); });
    {
      auto root = create(place.path(), "job", patient());
      EXPECT_TRUE(root.ok() && root->write(made).ok()) << root.status().message();
      rank.join();
      ASSERT_TRUE(early.ok()) << early.status().message();
      EXPECT_EQ(early->secret, made.secret);
      EXPECT_EQ(create(place.path(), "job", patient()).status().code(), Code::kUnavail);
      EXPECT_TRUE(create(place.path(), "another job", patient()).ok());
    }
    EXPECT_EQ(place.files().size(), 2u) << "one folder serves all";

    // The plain name is free again while a job is joining through the other folder.
    auto root = create(place.path(), "job", patient());
    ASSERT_TRUE(root.ok() && root->write(made).ok()) << root.status().message();
    std::filesystem::remove_all(place / plain_name());
    EXPECT_TRUE(create(place.path(), "another job", patient()).ok());
    EXPECT_TRUE(std::filesystem::is_directory(place / plain_name()));
    EXPECT_TRUE(find_host_root(place.path(), "job", patient()).ok());
    EXPECT_EQ(create(place.path(), "job", patient()).status().code(), Code::kUnavail);
  }
}

// Roots that come at the same time may each make a folder. Still only one of them opens the job.
TEST(HostRoot, OneOfTheRootsThatComeAtOnceToATakenName) {
  constexpr int kRoots = 4;
  for (int round = 0; round < 50; ++round) {
    const Folder place;
    std::filesystem::create_directory_symlink("/tmp", place / plain_name());
    std::barrier together(kRoots);
    std::atomic<int> winners{0};
    std::vector<std::jthread> roots;
    for (int i = 0; i < kRoots; ++i) {
      roots.emplace_back([&] {
        together.arrive_and_wait();
        const auto root = create(place.path(), "job", patient());
        if (root.ok()) ++winners;
        EXPECT_EQ(root.status().code(), root.ok() ? Code::kSuccess : Code::kUnavail);
        together.arrive_and_wait();  // the winner keeps the name until all have tried
      });
    }
    roots.clear();
    EXPECT_EQ(winners.load(), 1);
  }
}

TEST(HostRoot, WithoutAnyPlaceTheFolderAndItsOwnerAreNamed) {
  if (::geteuid() != 0) GTEST_FAIL() << "this test changes its user id: run it as root";
  const Folder place;
  ASSERT_EQ(::chmod(place.path().c_str(), 0755), 0);
  const std::string taken = place / plain_name(kNobody);
  ASSERT_TRUE(std::filesystem::create_directory(taken));
  const auto create_one = [&] {
    const Status status = create(place.path(), "job", soon()).status();
    const bool named = status.message().find(taken + " belongs to user 0") != std::string::npos;
    return status.code() == Code::kPara && named ? 0 : 2;
  };
  EXPECT_EQ(as_user(kNobody, create_one), 0);
}

// In a place that cannot be listed only the plain name is used: ranks could not find another
// folder.
TEST(HostRoot, APlaceThatCannotBeListedNeedsThePlainName) {
  if (::geteuid() != 0) GTEST_FAIL() << "this test changes its user id: run it as root";
  const Folder place;
  ASSERT_EQ(::chmod(place.path().c_str(), 01733), 0);
  const auto create_one = [&](Code expected) {
    return as_user(kNobody, [&] {
      return create(place.path(), "job", patient()).status().code() == expected ? 0 : 2;
    });
  };
  EXPECT_EQ(create_one(Code::kSuccess), 0);
  const std::string plain = place / plain_name(kNobody);
  ASSERT_EQ(::chown(plain.c_str(), 0, 0), 0);
  EXPECT_EQ(create_one(Code::kPara), 0);
  EXPECT_EQ(place.files().size(), 1u);
}

}  // namespace
}  // namespace hccl::testing
