// A communicator with its own name, buffer size and determinism. These settings override the
// environment.
#include <cstring>

#include "../../common/ranks.h"

void config(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));

  // Marks all fields as "not set". The settings must be the same on all ranks.
  HcclCommConfig settings;
  HcclCommConfigInit(&settings);
  std::strncpy(settings.hcclCommName, "training", sizeof settings.hcclCommName - 1);
  settings.hcclBufferSize = 32;  // MB
  settings.hcclDeterministic = 1;
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfoConfig(rank.count, rank.root_info, rank.id, &settings, &comm));

  char name[COMM_NAME_MAX_LENGTH] = "";
  HCCL_CHECK(HcclGetCommName(comm, name));
  rank.print("is in the communicator", std::vector<std::string>{name});

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, config); }
