/* What the daemon calls of CUDA's devices: the probe, a process that tries out what would end this one, and the prober,
 * which starts probes. */
#ifndef GB_BACKEND_CUDA_DEVICE_H
#define GB_BACKEND_CUDA_DEVICE_H

#include "base/error.h"

/* Opens another process's pool and pointer. -1 where argv[0] is not that word; see gb_backend_probe. */
#define GB_CUDA_PROBE "gpubufd-probe"
int gb_cuda_probe_main(int argc, char **argv);

/* The process that starts such probes for a daemon under Landlock: the driver writes the names of its threads into
 * /proc, under the process's number, which no rule can name before there is a process. */
#define GB_CUDA_PROBER "gpubufd-prober"
int gb_cuda_prober_main(int argc, char **argv);
/* Before the rules are in force and before there are threads, once: the environment keeps the socket to it. The process
 * ends with this one. */
int gb_cuda_prober_start(struct gb_error *err);

#endif
