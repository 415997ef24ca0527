#include "transport/mpi/mpi_mesh.h"
#include "transport/plugin_export.h"

HCCL_EXPORT_TRANSPORT("mpi", hccl::transport::mpi::open)
