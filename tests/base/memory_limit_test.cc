// How much memory is left, read from the system's files: both versions of cgroups, containers,
// limits of parent cgroups.
#include "hccl/base/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/folder.h"

namespace hccl {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class MemoryLimit : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void write(const std::string& path, std::uint64_t number) const {
    write(path, std::to_string(number) + "\n");
  }
  // A machine with 16 GiB, 8 of them free, and both cgroup versions; this process is in /job/a.
  void machine(const std::string& root = "/") const {
    write("/proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n");
    write("/proc/self/mountinfo",
          "20 1 0:19 / /proc rw - proc proc rw\n"
          "30 1 0:26 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu\n"
          "31 1 0:27 " +
              root +
              " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
              "32 1 0:28 " +
              root + " /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  }
  void version1(const std::string& cgroup, std::uint64_t limit, std::uint64_t usage,
                std::uint64_t cache) const {
    const std::string folder = "/sys/fs/cgroup/memory" + cgroup;
    write(folder + "/memory.limit_in_bytes", limit);
    write(folder + "/memory.usage_in_bytes", usage);
    write(folder + "/memory.stat",
          "cache 1\ninactive_file 3\ntotal_inactive_file " + std::to_string(cache) + "\n");
  }
  void version2(const std::string& cgroup, const std::string& limit, std::uint64_t usage,
                std::uint64_t cache) const {
    const std::string folder = "/sys/fs/cgroup/unified" + cgroup;
    write(folder + "/memory.max", limit + "\n");
    write(folder + "/memory.current", usage);
    write(folder + "/memory.stat", "anon 1\ninactive_file " + std::to_string(cache) + "\n");
  }
  MemoryLeft left() const { return memory_left(folder_.path()); }

  const testing::Folder folder_;
};

TEST_F(MemoryLimit, WithoutACgroupTheMachineIsTheLimit) {
  machine();
  EXPECT_EQ(left().bytes, 8192 * kMiB - 64 * kMiB);
  EXPECT_NE(left().of.find("this machine's memory"), std::string::npos);
}

TEST_F(MemoryLimit, WithoutAnyFileNothingIsLimited) { EXPECT_EQ(left().bytes, UINT64_MAX); }

TEST_F(MemoryLimit, OfVersionOneIsReadUpToTheTop) {
  machine();
  write("/proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job/a\n0::/\n");
  version1("", 9223372036854771712u, 5 * kMiB, 0);
  version1("/job", 320 * kMiB, 200 * kMiB, 50 * kMiB);
  version1("/job/a", 640 * kMiB, 100 * kMiB, 0);
  EXPECT_EQ(left().bytes, 170 * kMiB - 20 * kMiB);
  EXPECT_EQ(left().of, std::to_string(320 * kMiB) +
                           " bytes of the memory limit of cgroup "
                           "/sys/fs/cgroup/memory/job");
  version1("/job/a", 160 * kMiB, 140 * kMiB, 10 * kMiB);
  EXPECT_EQ(left().bytes, 30 * kMiB - 10 * kMiB);
  version1("/job/a", 160 * kMiB, 170 * kMiB, 0);
  EXPECT_EQ(left().bytes, 0u) << "more in use than the limit is";
}

TEST_F(MemoryLimit, OfVersionTwoIsReadAsWell) {
  machine();
  write("/proc/self/cgroup", "4:memory:/\n0::/job/a\n");
  version2("/job", "max", 200 * kMiB, 0);
  version2("/job/a", std::to_string(320 * kMiB), 300 * kMiB, 100 * kMiB);
  EXPECT_EQ(left().bytes, 120 * kMiB - 20 * kMiB);
  EXPECT_NE(left().of.find("/sys/fs/cgroup/unified/job/a"), std::string::npos) << left().of;
}

// In a container the mount begins at the container's own cgroup, and no other cgroup is visible.
TEST_F(MemoryLimit, InAContainerIsThatOfTheMount) {
  machine("/docker/c1");
  write("/proc/self/cgroup", "4:memory:/docker/c1\n0::/\n");
  version1("", 320 * kMiB, 100 * kMiB, 0);
  EXPECT_EQ(left().bytes, 200 * kMiB);
  write("/proc/self/cgroup", "4:memory:/docker/c1/inner\n0::/\n");
  version1("/inner", 160 * kMiB, 100 * kMiB, 0);
  EXPECT_EQ(left().bytes, 50 * kMiB);
}

TEST_F(MemoryLimit, TextNamesWhatIsNeededAndLeft) {
  EXPECT_TRUE(room_for(1, "a test").ok());
  const Status full = room_for(std::uint64_t{1} << 50, "a test");
  EXPECT_EQ(full.code(), Code::kOom);
  EXPECT_EQ(full.message().find("a test: 1125899906842624 bytes more do not fit: "), 0u)
      << full.message();
  EXPECT_NE(full.message().find(" are left of the "), std::string::npos);
}

}  // namespace
}  // namespace hccl
