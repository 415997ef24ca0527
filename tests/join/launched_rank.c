/* A rank that a launcher started. Joins, and prints its rank, its world's size and the nonce of
 * each of the world's ranks: the variable NONCE, which differs between jobs. On failure prints the
 * error's text. Arguments: "child" starts this program once more while it is a rank; "again" leaves
 * and joins once more; "retry" tries again while it fails; "daemon" first starts a daemon that
 * lives as long as the rank; "fork" forks a child, which pauses, when a line is read while this
 * program joins; "--pause" never joins. Exit status 0 = joined. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"

static int refused(void) {
  printf("refused: %s\n", HcclGetLastErrorText());
  return 1;
}

/* Starts this program without arguments, with this process's variables. */
static void start_child(const char* program) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    execl(program, program, (char*)NULL);
    _exit(127);
  }
  waitpid(child, NULL, 0);
}

static int join_once(HcclComm* comm) {
  int32_t nonces[64] = {0};
  uint32_t rank = 0, size = 0;
  int32_t nonce = atoi(getenv("NONCE") != NULL ? getenv("NONCE") : "0");
  if (HcclCommInitLauncher(comm) != HCCL_SUCCESS) return refused();
  HcclGetRankId(*comm, &rank);
  HcclGetRankSize(*comm, &size);
  if (size > 64 ||
      HcclAllGather(&nonce, nonces, 1, HCCL_DATA_TYPE_INT32, *comm, NULL) != HCCL_SUCCESS) {
    return refused();
  }
  char line[512];
  int used = snprintf(line, sizeof line, "rank %u of %u, nonces", rank, size);
  for (uint32_t i = 0; i < size; ++i) {
    used += snprintf(line + used, sizeof line - (size_t)used, " %d", nonces[i]);
  }
  printf("%s\n", line);
  fflush(stdout);
  return 0;
}

/* Starts a process that has left this process's session, and lives as long as this process. */
static void start_daemon(void) {
  int gone[2];
  if (pipe(gone) != 0) exit(3);
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    char byte = 0;
    close(gone[1]);
    close(STDOUT_FILENO);
    _exit((int)read(gone[0], &byte, 1));
  }
  close(gone[0]); /* the other end stays open until this process ends */
  waitpid(child, NULL, 0);
}

static void* fork_at_a_line(void* unused) {
  (void)unused;
  getchar();
  const pid_t child = fork();
  if (child == 0) {
    close(STDOUT_FILENO);
    pause();
  }
  printf("%d\n", (int)child);
  fflush(stdout);
  return NULL;
}

int main(int argc, char** argv) {
  HcclComm comm = NULL;
  const char* mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "--pause") == 0) pause();
  pthread_t thread;
  if (strcmp(mode, "fork") == 0) pthread_create(&thread, NULL, fork_at_a_line, NULL);
  if (strcmp(mode, "daemon") == 0) start_daemon();
  int result = join_once(&comm);
  while (result != 0 && strcmp(mode, "retry") == 0) {
    fflush(stdout);
    result = join_once(&comm);
  }
  if (result == 0 && strcmp(mode, "child") == 0) start_child(argv[0]);
  if (comm != NULL) HcclCommDestroy(comm);
  if (result == 0 && strcmp(mode, "again") == 0) {
    comm = NULL;
    result = join_once(&comm);
    if (comm != NULL) HcclCommDestroy(comm);
  }
  return result;
}
