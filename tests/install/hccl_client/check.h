// Checks a call: if it fails, prints the failure and returns false.
#ifndef HCCL_CLIENT_CHECK_H_
#define HCCL_CLIENT_CHECK_H_

#include <cstdio>

#define CLIENT_CHECK(call)                                                                 \
  do {                                                                                     \
    const int client_code = static_cast<int>(call);                                        \
    if (client_code != 0) {                                                                \
      std::fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, client_code); \
      return false;                                                                        \
    }                                                                                      \
  } while (false)

#endif  // HCCL_CLIENT_CHECK_H_
