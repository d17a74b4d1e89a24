/* Frees that wait until their device is idle. cudaFree, cudaFreeHost and cudaHostUnregister wait for all work of the
 * device, and other calls of CUDA wait for them; so one free would hold up the transfers of every client. Such memory
 * is kept until no stream of the device has work, and freed then. After GB_FREES_S seconds, beyond an eighth of the
 * device's memory, when an allocation finds no memory, and at the end it is freed all the same.
 *
 * One of these belongs to each device. Unless a contract says otherwise, the functions are for its lane of frees. */
#ifndef GB_CORE_MEMORY_FREES_H
#define GB_CORE_MEMORY_FREES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/lane.h"
#include "model/model.h"

struct gb_core_device;
struct gb_frees;

#define GB_FREES_S 30

/* Returns NULL if memory is exhausted. */
struct gb_frees *gb_frees_new(struct gb_core_device *device);

/* Frees what is left, then itself. The lane has ended. NULL is accepted. */
void gb_frees_end(struct gb_frees *frees);

/* Puts a free off if the device has work. The task runs again when the memory is to be freed, and this then returns
 * false for it. Returns false if the memory is to be freed now. */
bool gb_frees_put_off(struct gb_frees *frees, struct gb_task *task, enum gb_kind kind, uint64_t bytes);

/* The retry of the lane; arg: the device. */
bool gb_frees_retry(void *arg);

/* Has all that was put off freed now. Returns false if nothing was. [any thread, never blocks] */
bool gb_frees_hurry(struct gb_core_device *device);

/* The bytes that were put off, and how many frees have been made after that. [any thread, never blocks] */
uint64_t gb_frees_bytes(const struct gb_frees *frees);
uint64_t gb_frees_made(const struct gb_frees *frees);

#endif
