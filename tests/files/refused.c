/* Plugins for files that must be refused: with REFUSED_BUILD the plugin is of another build;
 * without, it defines nothing. */
#ifdef REFUSED_BUILD
const void* hccl_files_codecs(void);
const void* hccl_files_codecs(void) {
  static const char* const table[] = {"9.9, another compiler"};
  return table;
}
#else
extern int hccl_test_unused;
int hccl_test_unused = 0;
#endif
