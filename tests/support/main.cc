// The main program of a room's tests, which consist of several files. Runs the cases of the named
// files:
//   base_tests --file=fd_test.cc,queue_test.cc [GoogleTest's options]
// Without --file all cases run. With --file, a filter of GoogleTest may only leave out cases.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

namespace {

constexpr char kOption[] = "--file=";

std::set<std::string> names(const std::string& list) {
  std::set<std::string> out;
  std::istringstream text(list);
  for (std::string name; std::getline(text, name, ',');) out.insert(name);
  return out;
}

std::string file_of(const ::testing::TestInfo& test) {
  return std::filesystem::path(test.file()).filename().string();
}

// GoogleTest's filter for the suites of these files. Empty if one of the files has no suite, or if
// the cases of a suite are in several files.
std::string suites_of(const std::set<std::string>& files) {
  std::set<std::string> found;
  std::string filter;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    const std::string file = file_of(*suite.GetTestInfo(0));
    for (int t = 1; t < suite.total_test_count(); ++t) {
      if (file_of(*suite.GetTestInfo(t)) != file) return "";
    }
    if (files.count(file) == 0) continue;
    found.insert(file);
    filter += (filter.empty() ? "" : ":") + std::string(suite.name()) + ".*";
  }
  return found == files ? filter : "";
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return RUN_ALL_TESTS();
  const std::string option = argv[1];
  if (argc > 2 || option.rfind(kOption, 0) != 0) {
    std::fprintf(stderr, "%s: unknown argument \"%s\"\n", argv[0], argv[argc - 1]);
    return 2;
  }
  const std::string filter = suites_of(names(option.substr(sizeof kOption - 1)));
  const std::string given = ::testing::GTEST_FLAG(filter);
  if (filter.empty() || (given != "*" && given.rfind('-', 0) != 0)) {
    std::fprintf(stderr,
                 "%s: a file has no tests, a suite is in two files, or the filter names tests\n",
                 argv[0]);
    return 2;
  }
  ::testing::GTEST_FLAG(filter) = filter + (given == "*" ? "" : given);
  return RUN_ALL_TESTS();
}
