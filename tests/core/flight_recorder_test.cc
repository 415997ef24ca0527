// The files into which communicators that fail write their last operations.
#include "hccl/core/flight_recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/folder.h"

namespace hccl::core {
namespace {

namespace fs = std::filesystem;

TEST(FlightRecorder, KeepsTheLatestFilesOfItsOwn) {
  const testing::Folder folder;
  const auto make = [&](const std::string& name, int age) {
    const fs::path path = fs::path(folder.path()) / name;
    std::ofstream(path) << "x";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(age));
  };
  for (int i = 0; i < 9; ++i) make("hccl-flight-" + std::to_string(i) + ".json", (i * 5) % 9);
  make("another.json", 100);
  fs::create_symlink("another.json", fs::path(folder.path()) / "hccl-flight-link.json");
  FlightRecorder::keep_latest(folder.path(), 4);
  FlightRecorder::keep_latest("/no/such/directory", 4);
  std::set<std::string> left;
  for (const auto& each : fs::directory_iterator(folder.path())) {
    left.insert(each.path().filename().string());
  }
  // The four newest files are 0, 2, 4 and 6.
  const std::set<std::string> want = {"another.json",       "hccl-flight-link.json",
                                      "hccl-flight-0.json", "hccl-flight-2.json",
                                      "hccl-flight-4.json", "hccl-flight-6.json"};
  EXPECT_EQ(left, want);
}

}  // namespace
}  // namespace hccl::core
