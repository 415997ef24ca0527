// Loading transport plugins: which plugins are found, which are refused and why, and a plugin in C.
#include "transport/plugin.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "hccl/base/plugin.h"
#include "tests/support/folder.h"
#include "tests/support/ranks.h"

namespace hccl::transport {
namespace {

using testing::Rank;
using testing::run_ranks;
using testing::wait_one;
using namespace std::chrono_literals;

const std::string kDirectory = HCCL_TEST_PLUGIN_DIR;

std::string reason(std::string_view name, std::string_view path, Code code) {
  const auto table = load_plugin(name, path);
  EXPECT_FALSE(table.ok());
  EXPECT_EQ(table.status().code(), code) << table.status().message();
  return table.status().message();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PluginLoading, AMissingOneIsNamedWithEveryPlaceThatWasSearched) {
  const std::string why = reason("nowhere", "", Code::kNotSupport);
  EXPECT_TRUE(has(why, "libhccl_nowhere.so")) << why;
  for (const std::string& file : plugin_files("nowhere", "")) {
    EXPECT_TRUE(std::filesystem::path(file).is_absolute()) << file;
    EXPECT_TRUE(has(why, file)) << why;
  }
  EXPECT_TRUE(has(reason("nowhere", "/no/such/place", Code::kNotSupport),
                  "/no/such/place/libhccl_nowhere.so"));
}

TEST(PluginLoading, OnlyTheGivenDirectoryCounts) {
  EXPECT_EQ(plugin_files("ofi", "/somewhere"),
            std::vector<std::string>{"/somewhere/libhccl_ofi.so"});
  EXPECT_GE(plugin_files("ofi", "").size(), 3u);
}

TEST(PluginLoading, RefusesPathsAndNamesThatCouldLeadElsewhere) {
  EXPECT_TRUE(has(reason("loopback", "plugins", Code::kPara), "absolute"));
  EXPECT_TRUE(has(reason("loopback", "./plugins", Code::kPara), "absolute"));
  for (const char* name : {"", "../loopback", "a/b", "Loopback", "loop back", "x.so"}) {
    reason(name, kDirectory, Code::kPara);
  }
}

TEST(PluginLoading, RefusesWhatIsNoLibrary) {
  const testing::Folder folder;
  const std::string library = folder.write("libhccl_text.so", "this is text");
  const std::string why = reason("text", folder.path(), Code::kNotSupport);
  EXPECT_TRUE(has(why, library)) << why;
}

TEST(PluginLoading, RefusesTheWrongVersionAndSaysBoth) {
  const std::string why = reason("version", kDirectory, Code::kNotSupport);
  EXPECT_TRUE(has(why, "77")) << why;
  EXPECT_TRUE(has(why, "needs " + std::to_string(HCCL_TRANSPORT_PLUGIN_ABI))) << why;
  EXPECT_TRUE(has(why, kDirectory + "/libhccl_version.so")) << why;
}

TEST(PluginLoading, RefusesTablesThatCannotBeUsed) {
  EXPECT_TRUE(has(reason("nothing", kDirectory, Code::kNotSupport), HCCL_TRANSPORT_PLUGIN_SYMBOL));
  EXPECT_TRUE(has(reason("table", kDirectory, Code::kNotSupport), "16 bytes"));
  EXPECT_TRUE(has(reason("name", kDirectory, Code::kNotSupport), "\"other\""));
  EXPECT_TRUE(has(reason("holes", kDirectory, Code::kNotSupport), "lacks a function"));
}

/// Opens the C plugin on this rank.
Result<std::unique_ptr<Mesh>> open_loopback(const Rank& rank, const Config& config,
                                            const std::string& address = "127.0.0.1",
                                            std::string_view name = "loopback") {
  OpenArgs args = rank.open_args(Deadline::after(30s));
  args.config = &config;
  args.address = address;
  return open_plugin(name, args);
}

Config with_plugins() {
  Config config;
  config.plugin_path = kDirectory;
  return config;
}

TEST(PluginInC, CarriesMessages) {
  const Config config = with_plugins();
  run_ranks(3, [&](Rank& rank) {
    auto mesh = open_loopback(rank, config);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    EXPECT_EQ((*mesh)->name(), "loopback");
    EXPECT_EQ((*mesh)->rank(), rank.rank());
    EXPECT_EQ((*mesh)->size(), 3);
    std::vector<std::byte> in(1000);
    for (int i = 0; i < 20; ++i) {
      const auto out = testing::pattern(1000, static_cast<std::uint64_t>(i));
      Request send;
      Request recv;
      (*mesh)->recv(recv, rank.rank(), 5, in);
      EXPECT_FALSE(recv.done());
      (*mesh)->send(send, rank.rank(), 5, out);
      ASSERT_TRUE(wait_one(**mesh, recv).ok());
      ASSERT_TRUE(wait_one(**mesh, send).ok());
      EXPECT_EQ(in, out);
    }
  });
}

TEST(PluginInC, SaysAtOnceWhatItFinishesOrRefusesAtOnce) {
  const Config config = with_plugins();
  run_ranks(2, [&](Rank& rank) {
    auto mesh = open_loopback(rank, config);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    std::vector<std::byte> bytes(13);
    Request request;
    (*mesh)->send(request, 1, 0, std::span<std::byte>());
    EXPECT_TRUE(request.done());
    EXPECT_TRUE(request.status().ok());
    (*mesh)->send(request, 1, 0, bytes);
    EXPECT_TRUE(request.done());
    EXPECT_EQ(request.status().code(), Code::kRemote);
    EXPECT_EQ(request.status().culprit(), 1);
    EXPECT_EQ(request.status().message(), "13 brings bad luck");
    (*mesh)->send(request, 2, 0, bytes);  // the host refuses this: there is no rank 2
    EXPECT_EQ(request.status().code(), Code::kPara);
    (*mesh)->recv(request, 0, Mesh::kLanes, bytes);
    EXPECT_EQ(request.status().code(), Code::kPara);
  });
}

TEST(PluginInC, AbortEndsAWaitAndTheFirstReasonStays) {
  const Config config = with_plugins();
  run_ranks(2, [&](Rank& rank) {
    auto mesh = open_loopback(rank, config);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    std::vector<std::byte> bytes(10);
    std::vector<Request> requests(40);  // more than the host takes in one progress()
    for (Request& request : requests) (*mesh)->recv(request, 0, 0, bytes);
    std::jthread aborter([&] {
      std::this_thread::sleep_for(10ms);
      (*mesh)->abort(Status(Code::kTimeout, "too slow", 1));
      (*mesh)->abort(Status(Code::kInternal, "too late"));
    });
    for (Request& request : requests) {
      const Status status = wait_one(**mesh, request);
      EXPECT_EQ(status.message(), "too slow");
      EXPECT_EQ(status.culprit(), 1);
    }
    aborter.join();
    (*mesh)->recv(requests[0], 0, 0, bytes);
    EXPECT_TRUE(requests[0].done());
    EXPECT_EQ(requests[0].status().message(), "too slow");
  });
}

TEST(PluginInC, AFailureToOpenKeepsItsReason) {
  const Config config = with_plugins();
  run_ranks(2, [&](Rank& rank) {
    const auto mesh = open_loopback(rank, config, "no such address");
    ASSERT_FALSE(mesh.ok());
    EXPECT_EQ(mesh.status().code(), Code::kNotFound);
    EXPECT_EQ(mesh.status().culprit(), rank.rank());
    EXPECT_TRUE(has(mesh.status().message(), "loopback")) << mesh.status().message();
    EXPECT_TRUE(has(mesh.status().message(), "cannot bind")) << mesh.status().message();
  });
}

TEST(PluginInC, ARankWithoutThePluginFailsAllOfThem) {
  const Config config = with_plugins();
  Config without;
  without.plugin_path = "/no/such/place";
  run_ranks(3, [&](Rank& rank) {
    const auto mesh = open_loopback(rank, rank.rank() == 1 ? without : config);
    ASSERT_FALSE(mesh.ok());
    EXPECT_EQ(mesh.status().code(), Code::kNotSupport);
    EXPECT_TRUE(has(mesh.status().message(), "/no/such/place/libhccl_loopback.so"));
    if (rank.rank() != 1) {
      EXPECT_EQ(mesh.status().culprit(), 1);
      EXPECT_TRUE(has(mesh.status().message(), "rank 1")) << mesh.status().message();
    }
  });
}

}  // namespace
}  // namespace hccl::transport
