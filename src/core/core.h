/* Every use case as one function. No JSON, no HTTP, no SQL, no CUDA.
 *
 * * Functions marked [now] finish at once, take only short locks and may be called from an HTTP loop. Functions that
 * take a gb_call start work and return at once; an HTTP loop may call them too. call->done runs once, on another thread
 * or before the function has returned. By then all changes of the call are durable and visible, or none is. */
#ifndef GB_CORE_CORE_H
#define GB_CORE_CORE_H

#include "core/access/keys.h"
#include "core/access/tokens.h"
#include "core/buffer/transaction_batch.h"
#include "core/download/group.h"
#include "core/memory/alloc_log.h"
#include "core/multipart/multipart.h"
#include "core/observe/alloc_log_view.h"
#include "core/observe/audit.h"
#include "core/observe/feed.h"
#include "core/observe/history.h"
#include "core/observe/selftest.h"
#include "core/observe/stats.h"
#include "core/ops/scan.h"
#include "core/public/buffer.h"
#include "core/public/call.h"
#include "core/public/checkpoint.h"
#include "core/public/device.h"
#include "core/public/download.h"
#include "core/public/durable.h"
#include "core/public/lifecycle.h"
#include "core/public/pool.h"
#include "core/public/scrub.h"
#include "core/public/session.h"
#include "core/public/stream.h"
#include "core/public/types.h"
#include "core/public/upload.h"
#include "core/runtime/task.h"
#include "core/share/adopt.h"
#include "core/share/lease.h"
#include "core/upload/device_write.h"
#include "core/upload/group.h"

#endif
