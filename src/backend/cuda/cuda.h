/* The CUDA backend: every visible GPU, its memory from stream-ordered pools. */
#ifndef GB_BACKEND_CUDA_CUDA_H
#define GB_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"

/* Opens every visible GPU. args must be NULL or empty. ret_note (NULL, or GB_BACKEND_NOTE_SIZE bytes) gets one sentence
 * for the log, on success and on failure alike. UNSUPPORTED when no driver, no device or a device without memory pools
 * is there. The program itself starts without a driver: the runtime is linked statically and searches for one here. */
int gb_cuda_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

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
