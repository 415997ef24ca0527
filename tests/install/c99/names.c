/* names LIBRARY...: loads the same library by all its names, and checks that it is loaded once. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  static const char* const functions[] = {"HcclAllReduce", "HcclGetRootInfo", "aclrtSetDevice",
                                          "aclprofInit", "HcomDestroy"};
  void* first[5] = {0};
  int i, f;
  for (i = 1; i < argc; ++i) {
    void* library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    for (f = 0; f < 5; ++f) {
      void* here = dlsym(library, functions[f]);
      if (i == 1) first[f] = here;
      if (here == NULL || here != first[f]) {
        fprintf(stderr, "%s has another %s\n", argv[i], functions[f]);
        return 1;
      }
    }
  }
  return argc > 2 ? 0 : 1;
}
