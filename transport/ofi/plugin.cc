#include "transport/ofi/ofi_mesh.h"
#include "transport/plugin_export.h"

HCCL_EXPORT_TRANSPORT("ofi", hccl::transport::ofi::OfiMesh::open)
