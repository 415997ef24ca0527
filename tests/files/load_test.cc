// Loading the plugin for files: which plugins are refused, and with which reasons.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "hccl/files/codecs.h"
#include "tests/support/folder.h"

namespace hccl::files {
namespace {

void expect_refused(const std::string& directory, std::initializer_list<const char*> words) {
  const auto table = codecs(directory);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.status().code(), Code::kNotSupport);
  const std::string& why = table.status().message();
  EXPECT_NE(why.find(directory + "/libhccl_files.so"), std::string::npos) << why;
  for (const char* word : words) EXPECT_NE(why.find(word), std::string::npos) << why;
}

TEST(Load, FindsThePluginOfThisBuild) {
  const auto table = codecs();
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_STREQ((*table)->build, kBuild);
  EXPECT_EQ(*table, codecs().value());
}

TEST(Load, SaysWhereItLooked) { expect_refused("/no/such/place", {"there is no plugin"}); }

TEST(Load, SaysWhyALibraryCannotBeLoaded) {
  const testing::Folder folder;
  folder.write("libhccl_files.so", "this is text");
  expect_refused(folder.path(), {"cannot be loaded", "file too short"});
}

TEST(Load, RefusesWhatIsNoPluginOfThisBuild) {
  expect_refused(HCCL_TEST_FILES_NOTHING, {"does not export hccl_files_codecs"});
  expect_refused(HCCL_TEST_FILES_BUILD, {"9.9, another compiler", kBuild});
}

}  // namespace
}  // namespace hccl::files
