// isolation_test [LIBRARY]: writes and reads a trace in a process in which another Protobuf is
// visible to all libraries. That Protobuf is preloaded, or it is LIBRARY, which is loaded after
// libhccl.so.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "hccl/hccl.h"
#include "hccl/hccl_fusion.h"
#include "split/trace.h"

namespace {

const char* foreign = nullptr;

bool protobuf_is_loaded() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libprotobuf") != std::string::npos) return true;
  }
  return false;
}

// A fusion that has recorded one iteration of one rank.
HcclFusion recorded(HcclComm* comm, float* weights) {
  std::int32_t device = 0;
  EXPECT_EQ(HcclCommInitAll(1, &device, comm), HCCL_SUCCESS) << HcclGetLastErrorText();
  const HcclFusionGradient gradient = {"weights", weights, 4};
  HcclFusionOptions options{};
  options.dataType = HCCL_DATA_TYPE_FP32;
  HcclFusion fusion = nullptr;
  EXPECT_EQ(HcclFusionCreate(*comm, &gradient, 1, &options, &fusion), HCCL_SUCCESS);
  EXPECT_EQ(HcclFusionReady(fusion, 0), HCCL_SUCCESS);
  EXPECT_EQ(HcclFusionWait(fusion), HCCL_SUCCESS);
  return fusion;
}

TEST(Isolation, TracesAreWrittenAndReadBesideAnotherProtobuf) {
  float weights[4] = {1, 2, 3, 4};
  HcclComm comm = nullptr;
  HcclFusion fusion = recorded(&comm, weights);
  EXPECT_FALSE(protobuf_is_loaded()) << "before anything is read or written";
  if (foreign != nullptr) {
    ASSERT_NE(::dlopen(foreign, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
  }
  ASSERT_NE(::dlsym(RTLD_DEFAULT, "foreign_protobuf"), nullptr) << "no other Protobuf to bind";
  for (const char* name : {"trace.pb", "trace.pb.json"}) {
    const std::string path = testing::TempDir() + "hccl_isolation_" + name;
    ASSERT_EQ(HcclFusionTraceWrite(fusion, path.c_str()), HCCL_SUCCESS) << HcclGetLastErrorText();
    const auto trace = hccl::split::read_trace(path);
    std::filesystem::remove(path);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    ASSERT_EQ(trace->iterations.size(), 1u);
    EXPECT_EQ(trace->iterations[0].gradients.at(0).name, "weights");
  }
  EXPECT_TRUE(protobuf_is_loaded());
  EXPECT_EQ(HcclFusionDestroy(fusion), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) foreign = argv[1];
  return RUN_ALL_TESTS();
}
