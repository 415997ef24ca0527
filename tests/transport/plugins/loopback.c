/* A transport as anybody could write it: plain C, with transport/plugin_abi.h only. It carries
 * messages from a rank to itself, in the order of posting, without lanes; it refuses all other
 * peers. It has no functions for sleeping. */
#include <stdlib.h>
#include <string.h>

#include "transport/plugin_abi.h"

#define SLOTS 64

struct post {
  void* bytes;
  size_t size;
  void* token;
  uint32_t lane;
  int sends;
};

struct loopback {
  struct post posts[SLOTS];
  uint32_t count;
  struct hccl_plugin_error error;
  struct hccl_plugin_error reason;
  int aborted;
};

static void say(struct hccl_plugin_error* error, int32_t code, int32_t culprit, const char* why) {
  memset(error, 0, sizeof *error);
  error->code = code;
  error->culprit = culprit;
  strncpy(error->message, why, sizeof error->message - 1);
}

static void* loopback_open(const struct hccl_plugin_open_args* args,
                           struct hccl_plugin_error* error) {
  struct hccl_plugin_blob* all = calloc((size_t)args->size, sizeof *all);
  struct loopback* mesh = calloc(1, sizeof *mesh);
  char mine = (char)('a' + args->rank);
  int32_t code = 0;
  int32_t r;
  if (all == NULL || mesh == NULL) {
    say(error, 3, -1, "no memory");
    free(all);
    free(mesh);
    return NULL;
  }
  code = args->exchange(args->context, &mine, 1, all);
  for (r = 0; code == 0 && r < args->size; ++r) {
    if (all[r].size != 1 || *(const char*)all[r].bytes != (char)('a' + r)) code = 4;
  }
  free(all);
  if (code != 0) {
    say(error, code, -1, "the exchange gave wrong bytes");
  } else if (strcmp(args->address, "no such address") == 0) {
    say(error, 6, args->rank, "cannot bind to no such address");
  } else if (args->setting(args->context, "HCCL_NO_SUCH_THING") != NULL) {
    say(error, 4, -1, "a setting that is not");
  } else {
    return mesh;
  }
  free(mesh);
  return NULL;
}

static void loopback_close(void* mesh) { free(mesh); }

static int32_t post(struct loopback* mesh, int32_t peer, uint32_t lane, void* bytes, size_t size,
                    void* token, int sends) {
  struct post* next = &mesh->posts[mesh->count];
  if (size == 13) {
    say(&mesh->error, 21, peer, "13 brings bad luck");
    return HCCL_PLUGIN_FAILED;
  }
  if (sends && size == 0) return HCCL_PLUGIN_DONE;
  if (mesh->count == SLOTS) {
    say(&mesh->error, 7, -1, "too many posts");
    return HCCL_PLUGIN_FAILED;
  }
  next->bytes = bytes;
  next->size = size;
  next->token = token;
  next->lane = lane;
  next->sends = sends;
  ++mesh->count;
  return HCCL_PLUGIN_POSTED;
}

static int32_t loopback_send(void* mesh, int32_t peer, uint32_t lane, const void* bytes,
                             size_t size, void* token) {
  return post(mesh, peer, lane, (void*)bytes, size, token, 1);
}

static int32_t loopback_recv(void* mesh, int32_t peer, uint32_t lane, void* bytes, size_t size,
                             void* token) {
  return post(mesh, peer, lane, bytes, size, token, 0);
}

static void report(struct loopback* self, uint32_t place, struct hccl_plugin_completion* done) {
  done->token = self->posts[place].token;
  done->code = 0;
  done->culprit = -1;
  done->message = NULL;
  memmove(&self->posts[place], &self->posts[place + 1],
          (self->count - place - 1) * sizeof self->posts[0]);
  --self->count;
}

static uint32_t loopback_progress(void* mesh, struct hccl_plugin_completion* done,
                                  uint32_t capacity, int32_t* moved) {
  struct loopback* self = mesh;
  uint32_t count = 0;
  uint32_t s;
  uint32_t r;
  *moved = 0;
  while (self->aborted && self->count > 0 && count < capacity) {
    report(self, 0, &done[count]);
    done[count].code = self->reason.code;
    done[count].message = self->reason.message;
    ++count;
  }
  for (s = 0; s < self->count && count + 2 <= capacity; ++s) {
    if (!self->posts[s].sends) continue;
    for (r = 0; r < self->count; ++r) {
      if (self->posts[r].sends || self->posts[r].lane != self->posts[s].lane) continue;
      memcpy(self->posts[r].bytes, self->posts[s].bytes, self->posts[s].size);
      report(self, r > s ? r : s, &done[count++]);
      report(self, r > s ? s : r, &done[count++]);
      *moved = 1;
      return count;
    }
  }
  return count;
}

static void loopback_last_error(void* mesh, struct hccl_plugin_error* error) {
  *error = ((struct loopback*)mesh)->error;
}

static void loopback_abort(void* mesh, const struct hccl_plugin_error* reason) {
  struct loopback* self = mesh;
  self->reason = *reason;
  self->aborted = 1;
}

const struct hccl_transport_plugin hccl_transport_plugin_v1 = {
    HCCL_TRANSPORT_PLUGIN_ABI,
    sizeof(struct hccl_transport_plugin),
    "loopback",
    loopback_open,
    loopback_close,
    loopback_send,
    loopback_recv,
    loopback_progress,
    loopback_last_error,
    loopback_abort,
    NULL,
    NULL,
    NULL,
};
