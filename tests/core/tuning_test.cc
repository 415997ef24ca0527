// The table behind HCCL_TUNE_FILE: both forms of it, what is refused, what is found in it, and the
// file.
#include "hccl/core/tuning.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "hccl/core/tuning_file.h"

namespace hccl::core {
namespace {

TuningKey key(std::uint32_t ranks, std::uint32_t hosts = 1) {
  return {"0.1.0", "Some CPU with 2 cores", "tcp", hosts, ranks, ranks > 2};
}

TuningEntry messages(const TuningKey& key, std::uint64_t step_ns = 1000) {
  TuningEntry entry;
  entry.key = key;
  entry.messages.emplace();
  entry.messages->steps = {{64, step_ns, 10}, {4 << 20, std::uint64_t{5'000'000'000}, 20}};
  entry.messages->fold_ns_per_mib = 77;
  entry.messages->lanes = {{2, 12}, {4, -30}};
  return entry;
}

TuningEntry host(const TuningKey& key) {
  TuningEntry entry;
  entry.key = key;
  entry.ways = exec::host::Ways::for_host(2, false);
  entry.ways->ring_most = 262144;
  entry.ways->pull_most = 12345678;
  entry.ways->chain_from = 54321;
  entry.ways->cma_moves_from = 4321;
  entry.ways->cma_moves_most = 5432;
  entry.ways->cma_folds_from = 6543;
  entry.ways->cma_folds_most = 7654;
  entry.samples = {{exec::host::Way::kStage, true, 65536, 131072, 999}};
  return entry;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " is not in " << text;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

TEST(Tuning, ComesBackAsItWas) {
  Tuning tuning;
  tuning.put(messages(key(4)));
  tuning.put(host(key(2)));
  for (const auto& back :
       {tuning_from_binary(to_binary(tuning)), tuning_from_json(to_json(tuning))}) {
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, tuning);
  }
}

TEST(Tuning, WhatIsNotATableIsRefused) {
  for (const std::string& bytes :
       {std::string("hello"), std::string(1000, '\xff'), std::string("{}"), std::string("[1, 2]"),
        std::string("{\"version\": \"x\"}")}) {
    EXPECT_FALSE(tuning_from_binary(bytes).ok()) << bytes;
    EXPECT_FALSE(tuning_from_json(bytes).ok()) << bytes;
  }
  Tuning tuning;
  tuning.put(messages(key(4)));
  tuning.put(host(key(2)));
  const std::string good = to_json(tuning);
  const auto code = [&](const std::string& what, const std::string& by) {
    return tuning_from_json(replaced(good, what, by)).status().code();
  };
  EXPECT_EQ(code("\"version\": 1", "\"version\": 2"), Code::kNotSupport);
  EXPECT_EQ(code("\"version\": 1", "\"version\": 0"), Code::kPara);
  EXPECT_EQ(code("\"hosts\": 1", "\"hosts\": 0"), Code::kPara);
  EXPECT_EQ(code("\"step_ns\": \"1000\"", "\"step_ns\": \"0\""), Code::kPara);
  EXPECT_EQ(code("\"bytes\": \"64\"", "\"bytes\": \"99999999\""), Code::kPara);
  EXPECT_EQ(code("\"lanes\": 4", "\"lanes\": 4000000000"), Code::kPara);
  EXPECT_EQ(code("\"saved_percent\": 12", "\"saved_percent\": 1200"), Code::kPara);
  // What would write beyond rings.
  EXPECT_EQ(code("\"ring_most\": \"262144\"", "\"ring_most\": \"26214400\""), Code::kPara);
  EXPECT_EQ(code("\"chunk\": \"262144\"", "\"chunk\": \"0\""), Code::kPara);
  // Fields of a later library do no harm.
  EXPECT_EQ(code("\"version\": 1", "\"version\": 1, \"later\": 5"), Code::kSuccess);
  EXPECT_EQ(code("\"stage\"", "\"a way to come\""), Code::kSuccess);
}

TEST(Tuning, NoBytesDoHarm) {
  Tuning tuning;
  tuning.put(messages(key(4)));
  tuning.put(host(key(2)));
  const std::string good = to_binary(tuning);
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
    for (unsigned change = random() % 4; change > 0 && !bytes.empty(); --change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto read = tuning_from_binary(bytes);
    if (!read.ok()) continue;
    for (const TuningEntry& each : read->entries) {
      EXPECT_TRUE(!each.messages || each.messages->check().ok());
      EXPECT_TRUE(!each.ways || each.ways->check().ok());
    }
  }
}

TEST(Tuning, FindsItsKeyAndTheNearest) {
  Tuning tuning;
  EXPECT_EQ(tuning.find(key(4)), nullptr);
  EXPECT_EQ(tuning.nearest(key(4)), nullptr);
  tuning.put(messages(key(4)));
  tuning.put(messages(key(16)));
  tuning.put(messages(key(4, 2)));
  tuning.put(host(key(3)));
  EXPECT_EQ(tuning.find(key(4))->key, key(4));
  EXPECT_EQ(tuning.find(key(8)), nullptr);
  EXPECT_EQ(tuning.nearest(key(3))->key, key(4));  // the one of 3 has no costs of messages
  EXPECT_EQ(tuning.nearest(key(12))->key, key(16));
  EXPECT_EQ(tuning.nearest(key(4, 3))->key, key(4, 2));
  for (auto member : {&TuningKey::library, &TuningKey::cpu, &TuningKey::transport}) {
    TuningKey other = key(4);
    other.*member = "another";
    EXPECT_EQ(tuning.find(other), nullptr);
    EXPECT_EQ(tuning.nearest(other), nullptr);
  }
  TuningKey other = key(4);
  other.cma = true;
  EXPECT_EQ(tuning.find(other), nullptr);
  EXPECT_EQ(tuning.nearest(other)->key, key(4));
  // A key has one entry, the newest.
  tuning.put(messages(key(4), 2000));
  EXPECT_EQ(tuning.entries.size(), 4u);
  EXPECT_EQ(tuning.find(key(4))->messages->steps[0].step_ns, 2000u);
}

TEST(Tuning, OldEntriesGiveWay) {
  Tuning tuning;
  for (std::uint32_t ranks = 1; ranks <= Tuning::kMostEntries + 10; ++ranks) {
    tuning.put(messages(key(ranks)));
  }
  EXPECT_EQ(tuning.entries.size(), Tuning::kMostEntries);
  EXPECT_EQ(tuning.find(key(10)), nullptr);
  EXPECT_NE(tuning.find(key(11)), nullptr);
  EXPECT_TRUE(tuning_from_binary(to_binary(tuning)).ok());
}

class TuningFile : public ::testing::Test {
 protected:
  TuningFile() {
    std::string name = ::testing::TempDir() + "tuning.XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~TuningFile() override { static_cast<void>(std::system(("rm -rf " + folder_).c_str())); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string folder_;
};

TEST_F(TuningFile, IsMadeAndAddedTo) {
  for (const std::string name : {"table", "table.json"}) {
    const auto none = read_tuning(path(name));
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value());
    ASSERT_TRUE(keep_tuning(path(name), messages(key(4))).ok());
    ASSERT_TRUE(keep_tuning(path(name), host(key(2))).ok());
    const auto both = read_tuning(path(name));
    ASSERT_TRUE(both.ok() && both->has_value());
    EXPECT_EQ((*both)->entries.size(), 2u);
    EXPECT_EQ(*(*both)->find(key(4)), messages(key(4)));
    EXPECT_EQ(*(*both)->find(key(2)), host(key(2)));
    struct stat info = {};
    ASSERT_EQ(::stat(path(name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0644u);
  }
  EXPECT_EQ(read("table.json").front(), '{');
  EXPECT_NE(read("table").front(), '{');
  // Nothing is left beside them.
  EXPECT_EQ(std::system(("test $(ls " + folder_ + " | wc -l) = 2").c_str()), 0);
}

TEST_F(TuningFile, AnEmptyOneIsAsGoodAsNone) {
  write("made_by_mktemp", "");
  EXPECT_FALSE(read_tuning(path("made_by_mktemp")).value().has_value());
  EXPECT_TRUE(keep_tuning(path("made_by_mktemp"), host(key(2))).ok());
}

TEST_F(TuningFile, WhatIsSomethingElseStaysAsItIs) {
  write("letter", "Dear all, this is no table.");
  write("letter.json", "{\"to\": \"all\"}");
  for (const std::string name : {"letter", "letter.json"}) {
    const std::string before = read(name);
    for (const Status& status :
         {read_tuning(path(name)).status(), keep_tuning(path(name), host(key(2)))}) {
      EXPECT_EQ(status.code(), Code::kPara);
      EXPECT_NE(status.message().find(path(name)), std::string::npos) << status.message();
    }
    EXPECT_EQ(read(name), before);
  }
  EXPECT_EQ(read_tuning(folder_).status().code(), Code::kOpenFileFailure);
  EXPECT_EQ(keep_tuning(path("no/such/folder"), host(key(2))).code(), Code::kOpenFileFailure);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_tuning(path("pipe")).status().code(), Code::kOpenFileFailure);
}

}  // namespace
}  // namespace hccl::core
