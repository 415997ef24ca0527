/* The C interface between HCCL and a transport that is loaded at run time. Valid C99 and C++.
 *
 * A plugin is a shared library libhccl_<name>.so that exports one constant,
 * hccl_transport_plugin_v1. "The host" is the library that loads the plugin. The plugin's
 * functions have the meaning of the members of hccl::transport::Mesh (transport/transport.h); this
 * header describes only the differences in C. A backend written as a C++ Mesh does not need this
 * header: see transport/plugin_export.h.
 *
 * Threads: one thread at a time uses a mesh; several threads may use several meshes. Only abort()
 * may be called at any time from any thread. No function may throw or end the process. The
 * library is never unloaded. Every pointer argument is valid only during the call, except where a
 * comment says otherwise. */
#ifndef HCCL_TRANSPORT_PLUGIN_ABI_H_
#define HCCL_TRANSPORT_PLUGIN_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this header. It changes when the meaning or the offset of a member changes. If
 * members are added at the end of a struct, struct_size grows instead. */
#define HCCL_TRANSPORT_PLUGIN_ABI 1u

#define HCCL_PLUGIN_EXPORT __attribute__((visibility("default")))

/** The reason of a failure. */
struct hccl_plugin_error {
  int32_t code;      /**< an HcclResult, not 0 */
  int32_t culprit;   /**< the rank that caused the failure, or -1 */
  char message[504]; /**< for people, ends with a zero byte */
};

/** Bytes of one rank in an exchange. */
struct hccl_plugin_blob {
  const void* bytes;
  size_t size;
};

/** The arguments of open(). All pointers are valid until open() returns. */
struct hccl_plugin_open_args {
  uint32_t struct_size; /**< bytes of the host's version of this struct */
  int32_t rank;         /**< 0 <= rank < size */
  int32_t size;
  const int32_t* hosts; /**< ranks with equal numbers share memory; NULL if not known */
  const char* address;  /**< the local address to bind to: "10.0.0.1" or "::1"; may be empty */
  const uint8_t* key;   /**< 32 secret bytes of this plugin in this mesh, the same on all ranks */
  int64_t timeout_ns;   /**< time left to open; INT64_MAX: no limit */
  void* context;        /**< first argument of the two functions below */
  /** Gathers a blob of every rank into all[0..size-1]; blocks. The bytes belong to the host and
   * stay valid until the next exchange() or until open() returns. Returns 0 or an HcclResult. Every
   * rank must make the same number of calls, even if its open() has failed. */
  int32_t (*exchange)(void* context, const void* mine, size_t bytes, struct hccl_plugin_blob* all);
  /** The value of an HCCL_* setting ("HCCL_OFI_PROVIDER"); "" if not set, NULL if no setting has
   *  that name. */
  const char* (*setting)(void* context, const char* name);
  /** 1: receives wait for all peers at all times, so abort() ends the mesh also in good order.
   *  Members from here on exist if struct_size says so. */
  int32_t ends_by_abort;
};

/** The results of send() and recv(). */
enum hccl_plugin_post {
  HCCL_PLUGIN_POSTED = 0, /**< progress() will report the request, exactly once */
  HCCL_PLUGIN_DONE = 1,   /**< finished already; progress() will not report it */
  HCCL_PLUGIN_FAILED =
      2 /**< failed already; last_error() has the reason; progress() will not report it */
};

/** One finished send or receive. */
struct hccl_plugin_completion {
  void* token;         /**< as given to send() or recv() */
  int32_t code;        /**< an HcclResult; 0 = success */
  int32_t culprit;     /**< the rank that caused a failure, or -1 */
  const char* message; /**< valid until the next call with this mesh; NULL on success */
};

/** The table. Members are never NULL, except where a comment permits it. */
struct hccl_transport_plugin {
  uint32_t abi_version; /**< HCCL_TRANSPORT_PLUGIN_ABI */
  uint32_t struct_size; /**< sizeof(struct hccl_transport_plugin) */
  const char* name;     /**< <name> of libhccl_<name>.so */

  /** Opens a mesh. On failure returns NULL and sets *error. */
  void* (*open)(const struct hccl_plugin_open_args* args, struct hccl_plugin_error* error);
  /** Closes a mesh. The host calls it after abort(), or when no request is outstanding. */
  void (*close)(void* mesh);

  /** Post a request; never block. The bytes belong to the plugin until it reports the request's
   *  token, or finishes the request at once. The host has checked that 0 <= peer < size and that
   *  lane < 256. The result is an hccl_plugin_post. */
  int32_t (*send)(void* mesh, int32_t peer, uint32_t lane, const void* bytes, size_t size,
                  void* token);
  int32_t (*recv)(void* mesh, int32_t peer, uint32_t lane, void* bytes, size_t size, void* token);

  /** Moves bytes, without blocking, and writes up to `capacity` (at least 1) finished requests to
   *  `done`. Returns their number. *moved becomes 1 if bytes moved, else 0. */
  uint32_t (*progress)(void* mesh, struct hccl_plugin_completion* done, uint32_t capacity,
                       int32_t* moved);

  /** Gives the reason of the last failed send() or recv(). */
  void (*last_error)(void* mesh, struct hccl_plugin_error* error);

  /** Every outstanding request fails with this reason in the next progress(), and a sleeper wakes.
   * Any thread may call. The first reason wins. */
  void (*abort)(void* mesh, const struct hccl_plugin_error* reason);

  /** The three functions of hccl::Sleeper; the host calls them if progress() has nothing to do.
   * Either all or none of them may be NULL; without them the host takes short naps. */
  uint32_t (*sleep_prepare)(void* mesh);
  void (*sleep)(void* mesh, uint32_t ticket, int64_t at_most_ns);
  void (*sleep_awake)(void* mesh);
};

/** The constant that a plugin defines and the host looks up. The number is the major version of
 * the interface. */
extern HCCL_PLUGIN_EXPORT const struct hccl_transport_plugin hccl_transport_plugin_v1;
#define HCCL_TRANSPORT_PLUGIN_SYMBOL "hccl_transport_plugin_v1"

#ifdef __cplusplus
}
#endif

#endif /* HCCL_TRANSPORT_PLUGIN_ABI_H_ */
