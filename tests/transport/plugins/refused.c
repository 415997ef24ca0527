/* Plugins that the host must refuse; a macro of the compiler line chooses one of them. */
#include <stddef.h>

#include "transport/plugin_abi.h"

#if defined(REFUSED_VERSION)
const struct hccl_transport_plugin hccl_transport_plugin_v1 = {
    .abi_version = 77, .struct_size = sizeof(struct hccl_transport_plugin), .name = "version"};
#elif defined(REFUSED_TABLE)
const struct hccl_transport_plugin hccl_transport_plugin_v1 = {
    .abi_version = HCCL_TRANSPORT_PLUGIN_ABI, .struct_size = 16, .name = "table"};
#elif defined(REFUSED_NAME)
const struct hccl_transport_plugin hccl_transport_plugin_v1 = {
    .abi_version = HCCL_TRANSPORT_PLUGIN_ABI,
    .struct_size = sizeof(struct hccl_transport_plugin),
    .name = "other"};
#elif defined(REFUSED_HOLES)
const struct hccl_transport_plugin hccl_transport_plugin_v1 = {
    .abi_version = HCCL_TRANSPORT_PLUGIN_ABI,
    .struct_size = sizeof(struct hccl_transport_plugin),
    .name = "holes"};
#else
HCCL_PLUGIN_EXPORT int something_else;
#endif
