/* A C program that uses the names of HCCL which clients look for and few programs call. Two ranks
 * in one process; prints the line that failed. */
#include <hccl/acl/acl.h>
#include <hccl/hccl.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      return 1;                                               \
    }                                                         \
  } while (0)

static int events(void) {
  aclrtStream waiting, recording;
  aclrtEvent event, first;
  aclrtEventWaitStatus status = ACL_EVENT_WAIT_STATUS_RESERVED;
  CHECK(aclrtCreateStream(&waiting) == ACL_SUCCESS && aclrtCreateStream(&recording) == ACL_SUCCESS);
  CHECK(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC) == ACL_SUCCESS);
  CHECK(aclrtQueryEventWaitStatus(event, &status) == ACL_SUCCESS);
  CHECK(status == ACL_EVENT_WAIT_STATUS_NOT_READY); /* not recorded */
  CHECK(aclrtStreamWaitEvent(waiting, event) == ACL_SUCCESS);
  CHECK(aclrtRecordEvent(event, recording) == ACL_SUCCESS);
  CHECK(aclrtSynchronizeStream(recording) == ACL_SUCCESS);
  CHECK(aclrtSynchronizeStream(waiting) == ACL_SUCCESS);
  CHECK(aclrtQueryEventWaitStatus(event, &status) == ACL_SUCCESS);
  CHECK(status == ACL_EVENT_WAIT_STATUS_COMPLETE);
  CHECK(aclrtCreateEventWithFlag(&first, ACL_EVENT_SYNC) == ACL_SUCCESS);
  CHECK(aclrtStreamWaitEvent(waiting, first) == ACL_SUCCESS);
  CHECK(aclrtStreamWaitEvent(waiting, event) == ACL_SUCCESS); /* behind the other wait */
  CHECK(aclrtRecordEvent(event, NULL) == ACL_SUCCESS);        /* complete at once */
  CHECK(aclrtQueryEventWaitStatus(event, &status) == ACL_SUCCESS);
  CHECK(status == ACL_EVENT_WAIT_STATUS_NOT_READY);
  CHECK(aclrtRecordEvent(first, NULL) == ACL_SUCCESS);
  CHECK(aclrtSynchronizeStream(waiting) == ACL_SUCCESS);
  CHECK(aclrtQueryEventWaitStatus(event, &status) == ACL_SUCCESS);
  CHECK(status == ACL_EVENT_WAIT_STATUS_COMPLETE);
  CHECK(aclrtQueryEventWaitStatus(event, NULL) != ACL_SUCCESS);
  CHECK(aclrtDestroyEvent(event) == ACL_SUCCESS && aclrtDestroyEvent(first) == ACL_SUCCESS);
  CHECK(aclrtQueryEventWaitStatus(event, &status) != ACL_SUCCESS);
  CHECK(aclrtDestroyStream(waiting) == ACL_SUCCESS && aclrtDestroyStream(recording) == ACL_SUCCESS);
  return 0;
}

static int memory(HcclComm comm, HcclComm other) {
  char bytes[64];
  void *own = NULL, *second = NULL;
  HcclCommSymWindow window = NULL;
  size_t offset = 0;
  uint32_t peers[2] = {1, 1}, self = 0, none = 2;
  CHECK(HcclCommRegister(comm, bytes, sizeof bytes, &own, 0) == HCCL_SUCCESS);
  CHECK(HcclCommRegister(comm, bytes, sizeof bytes, &second, 0) == HCCL_SUCCESS && own != second);
  CHECK(HcclCommRegister(comm, bytes, 0, &own, 0) == HCCL_E_PARA);
  CHECK(HcclCommRegister(comm, bytes, 8, &own, 1) == HCCL_E_PARA);
  CHECK(HcclCommRegister(comm, NULL, 8, &own, 0) == HCCL_E_PTR);
  CHECK(HcclCommRegister(comm, bytes, 8, NULL, 0) == HCCL_E_PTR);
  CHECK(HcclCommSymWinGet(comm, bytes, 8, &window, &offset) == HCCL_E_NOT_FOUND);
  CHECK(HcclCommSymWinDeregister(own) == HCCL_E_PARA);
  CHECK(HcclCommExchangeMem(comm, own, peers, 1) == HCCL_SUCCESS);
  CHECK(HcclCommExchangeMem(comm, own, peers, 2) == HCCL_E_PARA); /* twice */
  CHECK(HcclCommExchangeMem(comm, own, &self, 1) == HCCL_E_PARA);
  CHECK(HcclCommExchangeMem(comm, own, &none, 1) == HCCL_E_PARA);
  CHECK(HcclCommExchangeMem(comm, own, NULL, 1) == HCCL_E_PTR);
  CHECK(HcclCommExchangeMem(other, own, &self, 1) == HCCL_E_PARA);
  CHECK(HcclCommDeregister(other, own) == HCCL_E_PARA);
  CHECK(HcclCommDeregister(comm, own) == HCCL_SUCCESS);
  CHECK(HcclCommDeregister(comm, own) == HCCL_E_PARA);
  CHECK(HcclCommDeregister(comm, second) == HCCL_SUCCESS);
  return 0;
}

static int settings(HcclComm comm, HcclComm other) {
  HcclConfigTypeOpExpansionMode mode = HCCL_OP_EXPANSION_AIV_ONLY;
  HcclConfigValue strict, none, found;
  uint32_t deterministic = 9;
  char udi[UDI_MAX_LENGTH];
  strict.value = 2;
  none.value = 0;
  CHECK(mode == 6 && HCCL_OP_EXPANSION_MODE_AIV_ONLY == 6);
  CHECK(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, sizeof mode, &mode) ==
        HCCL_SUCCESS);
  CHECK(mode == HCCL_OP_EXPANSION_MODE_HOST);
  CHECK(HcclSetCommConfig(comm, HCCL_DETERMINISTIC, strict) == HCCL_SUCCESS);
  CHECK(HcclSetConfig(HCCL_DETERMINISTIC, none) == HCCL_SUCCESS); /* not for comm */
  CHECK(HcclGetCommConfig(comm, HCCL_DETERMINISTIC, &found) == HCCL_SUCCESS && found.value == 2);
  CHECK(HcclGetCommConfig(other, HCCL_DETERMINISTIC, &found) == HCCL_SUCCESS && found.value == 0);
  CHECK(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_DETERMINISTIC, sizeof deterministic,
                          &deterministic) == HCCL_SUCCESS);
  CHECK(deterministic == 2);
  CHECK(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_DETERMINISTIC, 1, &deterministic) == HCCL_E_PARA);
  CHECK(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_UB_MULTI_CHANNEL_NUM, sizeof deterministic,
                          &deterministic) == HCCL_E_NOT_SUPPORT);
  CHECK(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_UDI, sizeof udi, udi) == HCCL_E_NOT_SUPPORT);
  strict.value = 3;
  CHECK(HcclSetCommConfig(comm, HCCL_DETERMINISTIC, strict) == HCCL_E_PARA);
  CHECK(HcclSetCommConfig(comm, HCCL_CONFIG_RESERVED, none) == HCCL_E_PARA);
  CHECK(HcclGetCommConfig(comm, HCCL_DETERMINISTIC, NULL) == HCCL_E_PTR);
  CHECK(HcclGetCommConfig(NULL, HCCL_DETERMINISTIC, &found) == HCCL_E_PTR);
  return 0;
}

int main(void) {
  HcclComm comms[2];
  int32_t devices[2] = {0, 1};
  CHECK(HcclCommInitAll(2, devices, comms) == HCCL_SUCCESS);
  if (events() || memory(comms[0], comms[1]) || settings(comms[0], comms[1])) return 1;
  puts("ok");
  return 0;
}
