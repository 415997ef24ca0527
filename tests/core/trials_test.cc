// In trials a world measures its machine before the first operation. A wait in a trial must not
// count as a wait in the operation of the same number. Ranks are threads.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string_view>
#include <thread>

#include "hccl/base/random.h"
#include "hccl/core/communicator.h"
#include "hccl/join/world.h"
#include "tests/support/config.h"
#include "tests/support/folder.h"
#include "tests/support/siblings.h"
#include "tests/support/threads.h"

namespace hccl::testing {
namespace {

constexpr std::chrono::milliseconds kLong{900};  // others report a wait after kReportInterval

/// A log that, if `late`, delays its rank once the transport is open, just before the trials.
Logger held_up(bool late) {
  if (!late) return make_logger("off", "");
  return std::make_shared<const Log>(LogLevel::kInfo, [](LogLevel, std::string_view line) {
    if (line.find(", transport ") != line.npos) std::this_thread::sleep_for(kLong);
  });
}

class Trials : public ::testing::TestWithParam<const char*> {};

// Rank 0 waits for rank 1 in the first trial, then rank 1 for rank 0 in the first operation.
TEST_P(Trials, AreNoOperations) {
  const Folder folder;
  Config config = quiet_config(GetParam());
  config.tune_file = folder / "tune";  // without one, tcp has no trials
  join::RootInfo info;
  ASSERT_TRUE(random_bytes(info.secret.data(), info.secret.size()).ok());
  ASSERT_TRUE(random_bytes(info.id.data(), info.id.size()).ok());
  info.address = "127.0.0.1";
  const auto thread = std::make_shared<join::Control>();
  const auto root = join::Node::root(thread, info, config, held_up(false));
  ASSERT_TRUE(root.ok()) << root.status().message();
  on_threads(2, [&](int rank) {
    const Logger log = held_up(rank == 1);
    const auto control = join::World::join(*root, 2, rank, config, log);
    ASSERT_TRUE(control.ok()) << control.status().message();
    const auto world =
        core::Communicator::world(*control, "world", config, log, testing::siblings());
    ASSERT_TRUE(world.ok()) << world.status().message();
    if (rank == 0) std::this_thread::sleep_for(kLong);
    const std::array<float, 2> mine{1, 2};
    std::array<float, 2> sum{};
    const Status status =
        (*world)->operations().run({Op::kAllReduce, mine.data(), sum.data(), mine.size()});
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(sum, (std::array<float, 2>{2, 4}));
    (*world)->leave();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Trials, ::testing::Values("shm", "tcp"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace hccl::testing
