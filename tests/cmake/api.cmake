# The public interface: codes, texts, groups, fusion; what is installed; who includes whom.
hccl_test(api_test SOURCES api_test.cc LIBS hccl)
