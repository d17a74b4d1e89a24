/* Processes of the CUDA backend: the probe, which opens a handle that could kill the daemon, and the prober, which
 * starts probes. */
#ifndef GB_BACKEND_CUDA_DEVICE_H
#define GB_BACKEND_CUDA_DEVICE_H

#include "base/error.h"

/* The probe opens another process's pool and pointer. Returns -1 if argv[0] is not that word; see gb_backend_probe. */
#define GB_CUDA_PROBE "gpubufd-probe"
int gb_cuda_probe_main(int argc, char **argv);

/* The prober starts probes for a daemon under Landlock: the driver writes the names of its threads into /proc, under
 * the process's number, which no rule can name before the process exists. */
#define GB_CUDA_PROBER "gpubufd-prober"
int gb_cuda_prober_main(int argc, char **argv);
/* Starts the prober, once, before Landlock's rules are in force and before threads start. The environment keeps its
 * socket. The prober ends with this process. Returns 0 or -1. */
int gb_cuda_prober_start(struct gb_error *err);

#endif
