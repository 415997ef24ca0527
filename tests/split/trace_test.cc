// A trace in all its forms: time line, Chrome JSON, CSV, protobuf; and files that cannot be
// written.
#include "split/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "hccl/files/codecs.h"
#include "split/engine/iteration.h"
#include "tests/support/folder.h"

namespace hccl::split {
namespace {

using hccl::testing::Folder;

constexpr std::int64_t kBegin = 5000000000123;  // clocks do not start at 0

std::string to_binary(const Trace& trace) {
  return files::encode(&files::Codecs::trace, trace, files::Form::kBinary).value();
}
std::string to_json(const Trace& trace) {
  return files::encode(&files::Codecs::trace, trace, files::Form::kJson).value();
}
Result<Trace> from_binary(std::string_view bytes) {
  return files::decode(&files::Codecs::trace, bytes, files::Form::kBinary);
}
Result<Trace> from_json(std::string_view text) {
  return files::decode(&files::Codecs::trace, text, files::Form::kJson);
}

Trace example() {
  Trace trace;
  trace.rank = 3;
  trace.rank_size = 4;
  trace.group = "hccl_world_group";
  for (std::uint64_t number : {7u, 8u}) {
    const auto at = [&](std::int64_t ns) {
      return kBegin + static_cast<std::int64_t>(number) * 1000000 + ns;
    };
    TraceIteration iteration;
    iteration.number = number;
    // Marks are not in the order of time, as a recorder may leave them.
    iteration.marks = {{"iteration_end", at(900999)}, {"fp_start", at(0)}, {"bp_end", at(600000)}};
    iteration.gradients = {{0, "fc/bias, \"last\"", 4000, at(100000)},
                           {1, "fc/kernel", 8192000, at(200000)},
                           {2, "", 9408, at(600000)}};
    iteration.segments = {{0, 1, 8196000, "ring", at(200500), at(599000), 1500, 77},
                          {2, 2, 9408, "mesh", at(600000), at(701000), 0}};
    iteration.begin_ns = at(0);
    iteration.compute_end_ns = at(600000);
    iteration.overlapped = number == 7;
    iteration.plan_version = 4;
    iteration.predicted_end_ns = 700000;
    iteration.lower_bound_ns = 650000;
    trace.iterations.push_back(iteration);
  }
  return trace;
}

TEST(Timeline, IsSortedAndStartsAtZero) {
  EXPECT_EQ(timeline_text(example().iterations[0]),
            "0 fp_start\n"
            "200 allreduce1_start\n"
            "599 allreduce1_end\n"
            "600 bp_end\n"
            "600 allreduce2_start\n"
            "701 allreduce2_end\n"
            "900 iteration_end\n");
  EXPECT_EQ(timeline_text({}), "");
}

TEST(Timeline, EqualTimesKeepTheOrderOfAnIteration) {
  TraceIteration iteration;
  iteration.marks = {{"iteration_end", 5}, {"fp_start", 5}, {"bp_end", 5}};
  iteration.segments.resize(1);
  iteration.segments[0].start_ns = iteration.segments[0].end_ns = 5;
  EXPECT_EQ(timeline_text(iteration),
            "0 fp_start\n0 bp_end\n0 allreduce1_start\n0 allreduce1_end\n0 iteration_end\n");
}

TEST(Chrome, HasTheEventsThatViewersNeed) {
  const Trace trace = example();
  const auto document = nlohmann::json::parse(chrome_json(trace));
  std::map<std::string, int> phases;
  std::map<std::string, nlohmann::json> first;  // by name, of iteration 7
  for (const auto& event : document.at("traceEvents")) {
    const std::string phase = event.at("ph");
    ++phases[phase];
    EXPECT_EQ(event.at("pid"), 3);
    EXPECT_TRUE(event.at("tid").is_number_integer());
    if (phase == "M") continue;
    EXPECT_TRUE(event.at("ts").is_number());
    if (phase == "X") {
      EXPECT_GE(event.at("dur").get<double>(), 0);
    }
    if (event.at("args").at("iteration") == 7) first.emplace(event.at("name"), event);
  }
  EXPECT_EQ(phases["X"], 2 * (2 + 1)) << "segments, and forward and backward";
  EXPECT_EQ(phases["i"], 2 * (7 + 3)) << "points and gradients";
  EXPECT_EQ(phases["M"], 4);
  const auto& segment = first.at("allreduce1");
  EXPECT_DOUBLE_EQ(segment.at("ts"), (kBegin + 7000000 + 200500) / 1000.0);
  EXPECT_DOUBLE_EQ(segment.at("dur"), 398.5);
  EXPECT_EQ(segment.at("args").at("bytes"), 8196000);
  EXPECT_EQ(segment.at("args").at("algorithm"), "ring");
  EXPECT_EQ(segment.at("args").at("gradients"), nlohmann::json({0, 1}));
  EXPECT_DOUBLE_EQ(segment.at("args").at("wait_for_peer_us"), 1.5);
  EXPECT_DOUBLE_EQ(segment.at("args").at("cpu_us"), 0.077);
  EXPECT_EQ(first.at("forward and backward").at("args").at("plan"), 4);
  EXPECT_EQ(first.count("fp_start"), 1u);
  EXPECT_EQ(first.count("iteration_end"), 1u);
  EXPECT_EQ(first.count("fc/kernel"), 1u);
  EXPECT_EQ(first.count("gradient 2"), 1u) << "a gradient without a name";
}

TEST(Chrome, SurvivesNamesThatAreNotUtf8) {
  Trace trace = example();
  trace.iterations[0].gradients[0].name = "bad\xff\xc3name";
  EXPECT_TRUE(nlohmann::json::accept(chrome_json(trace)));
}

TEST(Csv, HasARowForEverything) {
  std::istringstream lines(csv(example()));
  std::vector<std::string> rows;
  for (std::string row; std::getline(lines, row);) rows.push_back(row);
  ASSERT_EQ(rows.size(), 1u + 2 * (7 + 3 + 2));
  EXPECT_EQ(rows[0],
            "rank,iteration,kind,name,first,last,bytes,algorithm,start_ns,end_ns,wait_for_peer_ns,"
            "cpu_ns");
  EXPECT_EQ(rows[1], "3,7,point,fp_start,,,,,5000007000123,5000007000123,,");
  EXPECT_EQ(rows[8],
            "3,7,gradient,\"fc/bias, \"\"last\"\"\",0,0,4000,,5000007100123,5000007100123,,");
  EXPECT_EQ(rows[11],
            "3,7,segment,allreduce1,0,1,8196000,ring,5000007200623,5000007599123,1500,77");
}

TEST(Protobuf, BinaryAndJsonComeBackTheSame) {
  Trace trace = example();
  auto& segment = trace.iterations[1].segments[0];
  segment.start_ns = std::numeric_limits<std::int64_t>::min();
  segment.end_ns = std::numeric_limits<std::int64_t>::max();
  segment.bytes = std::numeric_limits<std::uint64_t>::max();
  for (const auto& back : {from_binary(to_binary(trace)), from_json(to_json(trace))}) {
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back.value(), trace);
  }
}

TEST(Protobuf, NamesBecomeUtf8) {
  Trace trace = example();
  const std::string good = "Gewichte \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80";
  trace.iterations[0].gradients[0].name = good;
  trace.iterations[0].gradients[1].name = "\xff bad \xc3";
  trace.iterations[0].gradients[2].name = "\xed\xa0\x80";  // half of a surrogate pair
  const auto back = from_binary(to_binary(trace));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back.value().iterations[0].gradients[0].name, good);
  EXPECT_EQ(back.value().iterations[0].gradients[1].name, "? bad ?");
  EXPECT_EQ(back.value().iterations[0].gradients[2].name, "???");
  EXPECT_TRUE(from_json(to_json(trace)).ok());
}

TEST(Protobuf, RefusesWhatItCannotRead) {
  EXPECT_EQ(from_binary("\xff\xff\xff nonsense").status().code(), Code::kPara);
  EXPECT_EQ(from_binary("").status().code(), Code::kPara) << "no version";
  EXPECT_EQ(from_json("{").status().code(), Code::kPara);
  EXPECT_EQ(from_json("{\"version\": \"x\"}").status().code(), Code::kPara);
  Trace newer = example();
  newer.version = kTraceVersion + 1;
  const auto refused = from_binary(to_binary(newer));
  EXPECT_EQ(refused.status().code(), Code::kNotSupport);
  EXPECT_NE(refused.status().message().find("version 2"), std::string::npos)
      << refused.status().message();
  const std::string whole = to_binary(example());
  for (std::size_t size = 0; size < whole.size();
       ++size)  // cut off anywhere, it gives an answer and no crash
    (void)from_binary(std::string_view(whole).substr(0, size));
}

TEST(WriteTrace, TheSuffixPicksTheForm) {
  const Folder folder;
  const Trace trace = example();
  for (const std::string name : {"t.json", "t.csv", "t.pb", "json", "t"})
    ASSERT_TRUE(write_trace(trace, folder / name).ok());
  const std::string chrome = folder.read("t.json"), events = chrome_json(trace);
  EXPECT_TRUE(chrome.starts_with(events.substr(0, events.size() - 1))) << chrome;
  EXPECT_TRUE(nlohmann::json::accept(chrome)) << chrome;
  EXPECT_EQ(folder.read("t.csv"), csv(trace));
  for (const std::string name : {"t.pb", "json", "t"})
    EXPECT_EQ(from_binary(folder.read(name)).value(), trace);
  // A shorter trace replaces a longer one completely.
  ASSERT_TRUE(write_trace({}, folder / "t.csv").ok());
  EXPECT_EQ(folder.read("t.csv"), csv({}));
}

TEST(ReadTrace, ReadsTheMessageInEachForm) {
  const Folder folder;
  Trace trace = example();
  trace.iterations[0].gradients[0].name = ",\"hcclTrace\":{}";
  for (const std::string name : {"t.pb", "t.pb.json", "t", "t.json"}) {
    ASSERT_TRUE(write_trace(trace, folder / name).ok());
    const auto back = read_trace(folder / name);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back.value(), trace);
  }
  EXPECT_EQ(folder.read("t.pb.json").front(), '{');
}

TEST(ReadTrace, SaysWhatAFileIsInstead) {
  const Folder folder;
  const auto refused = [&](const std::string& name, Code code, const std::string& words) {
    const auto trace = read_trace(folder / name);
    ASSERT_FALSE(trace.ok()) << name;
    EXPECT_EQ(trace.status().code(), code);
    EXPECT_NE(trace.status().message().find(words), std::string::npos) << trace.status().message();
    EXPECT_NE(trace.status().message().find(folder / name), std::string::npos);
  };
  refused("missing", Code::kOpenFileFailure, "No such file");
  folder.write("t.json", chrome_json(example()));
  refused("t.json", Code::kPara, "Chrome's form");
  ASSERT_TRUE(write_trace(example(), folder / "t.csv").ok());
  refused("t.csv", Code::kPara, "a table");
  const auto put = [&](const std::string& name, const std::string& text) {
    folder.write(name, text);
  };
  put("empty", "");
  refused("empty", Code::kPara, "empty");
  put("picture", "\x89PNG\r\n");
  refused("picture", Code::kPara, "not a trace");
  put("large", std::string((32 << 20) + 1, '\1'));
  refused("large", Code::kPara, "more than 32 MiB");
  std::string many = R"({"version": 1, "iterations": [{})";
  for (int i = 0; i < 1 << 20; ++i) many += ",{}";
  put("many", many + "]}");
  refused("many", Code::kPara, "more than 1048576 objects");
  put("cut", to_json(example()).substr(0, 300));
  refused("cut", Code::kPara, "not a trace");
  put("typo", R"({"version": 1, "iterations": [{"number": "x"}]})");
  refused("typo", Code::kPara, "number");
  Trace newer = example();
  newer.version = 99;
  put("newer", to_binary(newer));
  refused("newer", Code::kNotSupport, "version 99");
}

void expect_cannot_write(const std::string& path, const std::string& reason) {
  const Status status = write_trace(example(), path);
  EXPECT_EQ(status.code(), Code::kOpenFileFailure);
  EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
}

TEST(WriteTrace, SaysWhyItCannot) {
  const Folder folder;
  expect_cannot_write(folder / "missing/t.json", "No such file or directory");
  expect_cannot_write(folder / "", "Is a directory");
  expect_cannot_write("", "No such file or directory");
  expect_cannot_write("/dev/full", "No space left on device");
}

TEST(WriteTrace, SaysThatTheDiskIsFullInEveryForm) {
  const Folder folder;
  for (const std::string name : {"t.json", "t.csv", "t.pb"}) {
    std::filesystem::create_symlink("/dev/full", folder / name);
    expect_cannot_write(folder / name, "No space left on device");
  }
}

// The trace of a large model can be read again, and lacks the iteration that failed.
TEST(Recording, ATraceHasTheNewestIterationsThatCanBeRead) {
  constexpr std::uint32_t kGradients = 1100;
  std::vector<TraceGradient> gradients;
  for (std::uint32_t i = 0; i < kGradients; ++i) {
    gradients.push_back({i, std::string(66, 'n') + std::to_string(i), 1 << 20});
  }
  Recording recording({kTraceVersion, 0, 2, "hccl_world_group", {}}, gradients);
  const auto plan = std::make_shared<PlanVersion>();
  plan->last_indices = {kGradients / 2, kGradients - 1};
  plan->bytes = {std::uint64_t{kGradients / 2 + 1} << 20, std::uint64_t{kGradients / 2 - 1} << 20};
  for (std::uint64_t number = 1; number <= 180; ++number) {
    recording.begin(plan, false);
    Times& now = recording.now();
    std::ranges::fill(now.ready, now_ns());
    recording.begin_wait();
    for (const std::size_t segment : {0, 1}) {
      now.start[segment] = now_ns();
      if (segment == 0 || number != 178) now.end[segment] = now_ns();
      now.algorithm[segment] = "halving_doubling";
    }
    recording.end();
  }
  const Trace trace = recording.trace();
  EXPECT_TRUE(check_trace(trace).ok()) << check_trace(trace).message();
  ASSERT_GT(trace.iterations.size(), 50u);
  std::uint64_t number = 180;
  for (auto at = trace.iterations.rbegin(); at != trace.iterations.rend(); ++at, --number) {
    if (number == 178) --number;
    EXPECT_EQ(at->number, number);
  }
  const Folder folder;
  for (const char* name : {"t.pb", "t.json"}) {
    ASSERT_TRUE(write_trace(trace, folder / name).ok());
    const auto again = read_trace(folder / name);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->iterations.size(), trace.iterations.size());
  }
  EXPECT_LE(std::filesystem::file_size(folder / "t.pb"), std::size_t{16} << 20);
  EXPECT_GE(std::filesystem::file_size(folder / "t.pb"), std::size_t{8} << 20);
}

}  // namespace
}  // namespace hccl::split
