#!/bin/sh
# stream-ordered.sh [URL]: plays the chapter of the CUDA guide on the stream-ordered allocator against a running gpubufd,
# section by section: what is done, what is to be seen, and whether it is. Ends with 1 when something differs.
#
# URL is http://127.0.0.1:7070 unless given, or unix:///PATH of the daemon's socket, which exports need. GPUBUF_TOKEN is a token
# with the scope admin, where the daemon wants one. The script makes a session of its own, and deletes it at the end. It needs
# curl.
set -u

usage() {
    cat <<'END'
Usage: stream-ordered.sh [URL]

Plays the chapter of the CUDA guide on the stream-ordered allocator against a running gpubufd, in a session of its own, and
checks what is to be seen. URL is http://127.0.0.1:7070 unless given, or unix:///PATH of the daemon's socket.
GPUBUF_TOKEN is a token with the scope admin, where the daemon wants one.

Exit status: 0 all is as the chapter says, or the device has no pools; 1 something differs or cannot be asked; 2 usage.
END
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
-*)
    echo "stream-ordered.sh: \"$1\" is no URL" >&2
    usage >&2
    exit 2
    ;;
esac
given=${1:-http://127.0.0.1:7070}
url=${given%/}
socket=
case $url in
unix://*)
    socket=${url#unix://}
    url=http://localhost
    ;;
esac
session=stream-ordered-$$
base=/v1/sessions/$session
mib=1048576
block=$((40 * mib)) # more than the 32 MiB by which a pool grows on a GPU
off='"follow_event_dependencies":false,"allow_opportunistic":false,"allow_internal_dependencies":false'
wrong=0

# --- asking ---------------------------------------------------------------------------------------------------------------

# ask METHOD PATH [JSON]: sets $status and $body.
ask() {
    set -- "$1" "$2" "${3-}"
    body=$(curl -sS -X "$1" ${socket:+--unix-socket "$socket"} ${GPUBUF_TOKEN:+-H "Authorization: Bearer $GPUBUF_TOKEN"} ${3:+-H 'Content-Type: application/json' -d "$3"} \
        -w '\n%{http_code}' "$url$2") || body="
000"
    status=${body##*
}
    body=${body%
*}
}

# must METHOD PATH [JSON]: the same; a refusal is the end.
must() {
    ask "$@"
    case $status in
    2*) ;;
    *)
        echo "$1 $2 was answered with $status: $body" >&2
        exit 1
        ;;
    esac
}

# number KEY, text KEY: a member of $body, whose keys differ.
number() {
    printf '%s' "$body" | sed -n "s/.*\"$1\":\([0-9][0-9]*\).*/\1/p"
}

text() {
    printf '%s' "$body" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"
}

# has TEXT: is it in $body?
has() {
    case $body in *"$1"*) echo yes ;; *) echo no ;; esac
}

# pool_number POOL KEY: a number of a pool, now.
pool_number() {
    must GET "$base/pools/$1"
    number "$2"
}

# address BUFFER: where its memory is.
address() {
    must GET "$base/buffers/$1?attributes=true"
    text device_address
}

# --- telling --------------------------------------------------------------------------------------------------------------

section() {
    printf '\n== %s\n' "$1"
}

does() {
    echo "   does: $1"
}

skip() {
    echo "   skipped: $1"
}

# check WHAT LEFT RELATION RIGHT: relations of test(1).
check() {
    if test "$2" "$3" "$4"; then
        echo "   seen: $1 ($2 $3 $4)"
    else
        echo "   DIFFERS: $1: expected $2 $3 $4"
        wrong=1
    fi
}

# --- steps ----------------------------------------------------------------------------------------------------------------

# pool NAME MORE: an explicit pool; MORE are members of its JSON after a comma.
pool() {
    must POST "$base/pools" "{\"name\":\"$1\"$2}"
}

# buffer NAME BYTES POOL STREAM: allocates in stream order.
buffer() {
    must POST "$base/buffers" "{\"name\":\"$1\",\"bytes\":$2,\"pool\":\"$3\",\"stream\":\"$4\"}"
}

# free_it NAME: queues the free behind what its stream has to do.
free_it() {
    must DELETE "$base/buffers/$1"
}

# hold STREAM MS: the stream is busy for so long.
hold() {
    must POST "$base/streams/$1/hold" "{\"ms\":$2}"
}

# until_idle STREAM: looks at the stream, and waits for nothing that CUDA would call a synchronization.
until_idle() {
    tries=0
    while must GET "$base/streams/$1" && [ "$(has '"busy":true')" = yes ] && [ $tries -lt 600 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
}

# reuse_json POLICY HOW: members of a pool's JSON: all policies off but that one, if HOW is on.
reuse_json() {
    printf ',"release_threshold_bytes":null,"reuse":{%s}' "$off" |
        if [ "$2" = on ]; then sed "s/\"$1\":false/\"$1\":true/"; else cat; fi
}

# same WHERE HOW LEFT RIGHT: the addresses are equal if HOW is on, and differ if it is off.
same() {
    if [ "$2" = on ]; then check "the same memory $1" "$3" = "$4"; else check "other memory $1" "$3" != "$4"; fi
}

# away POOL BUFFER...: all of it goes.
away() {
    name=$1
    shift
    for b in "$@"; do free_it "$b"; done
    must POST "$base/sync"
    must DELETE "$base/pools/$name"
}

# --- the sections ---------------------------------------------------------------------------------------------------------

support() {
    section "Query for support"
    does "GET /v1/devices/0"
    must GET /v1/devices/0
    echo "   device: $(text name)"
    case $body in
    *'"memory_pools":{"available":true'*) echo "   seen: it has memory pools" ;;
    *)
        skip "this device has no memory pools; its buffers come from cudaMalloc"
        exit $wrong
        ;;
    esac
}

default_pool() {
    section "The default pool, and allocation in stream order"
    does "a buffer without a pool: cudaMallocAsync, then cudaFreeAsync"
    must POST "$base/buffers" '{"name":"x","bytes":1048576}'
    must GET "$base/buffers/x?attributes=true"
    check "it is from the pool" "$(text pool)" = default
    check "its memory is a pool's" "$(has '"from_pool":true')" = yes
    check "the pool has reserved that much" "$(pool_number default reserved_bytes)" -ge $mib
    free_it x
}

explicit_pool() {
    section "Explicit pools and the release threshold"
    does "pools with the thresholds 0 and unlimited; 40 MiB are allocated, freed, and the stream is synchronized"
    for threshold in 0 null; do
        pool p ",\"release_threshold_bytes\":$threshold"
        buffer x $block p default
        check "the pool uses them" "$(pool_number p used_bytes)" -ge $block
        free_it x
        must POST "$base/streams/default/sync"
        if [ $threshold = 0 ]; then
            check "above threshold 0 all went back at the synchronization" "$(pool_number p reserved_bytes)" -eq 0
        else
            check "without a threshold it is kept" "$(pool_number p reserved_bytes)" -ge $block
        fi
        away p
    done
}

trim() {
    section "Trim"
    does "a pool that keeps 40 MiB is trimmed to 0"
    pool p ',"release_threshold_bytes":null'
    buffer x $block p default
    free_it x
    must POST "$base/sync"
    check "it keeps them" "$(pool_number p reserved_bytes)" -ge $block
    must POST "$base/pools/p/trim" '{"keep_bytes":0}'
    check "after the trim it keeps nothing" "$(pool_number p reserved_bytes)" -eq 0
    away p
}

watermarks() {
    section "Watermarks and their reset"
    does "40 MiB come and go, then POST .../reset-peak"
    pool p ',"release_threshold_bytes":null'
    buffer x $block p default
    free_it x
    must POST "$base/sync"
    check "nothing is used now" "$(pool_number p used_bytes)" -eq 0
    check "the high watermark has it" "$(pool_number p used_peak_bytes)" -ge $block
    must POST "$base/pools/p/reset-peak"
    check "after the reset it is what is used now" "$(pool_number p used_peak_bytes)" -eq 0
    away p
}

same_stream() {
    section "Reuse on one stream"
    does "memory freed on stream a is allocated there again while a is busy, with all policies off"
    pool p "$(reuse_json none off)"
    buffer x $mib p a
    before=$(address x)
    hold a 2000
    free_it x
    buffer y $mib p a
    check "it is the same memory" "$(address y)" = "$before"
    away p y
}

by_event() {
    section "Reuse: follow_event_dependencies"
    for how in on off; do
        does "policy $how: freed on a, which is busy; b waits for an event behind the free and allocates"
        pool p "$(reuse_json follow_event_dependencies $how)"
        buffer x $mib p a
        before=$(address x)
        hold a 1500
        free_it x
        must POST "$base/events/e/record" '{"stream":"a"}'
        must POST "$base/events/e/wait" '{"stream":"b"}'
        buffer y $mib p b
        same "on b" $how "$(address y)" "$before"
        until_idle a
        away p y
    done
}

opportunistic() {
    section "Reuse: allow_opportunistic"
    for how in on off; do
        does "policy $how: freed on a, which is busy; b allocates before the free is over, and again after it"
        pool p "$(reuse_json allow_opportunistic $how)"
        buffer x $mib p a
        before=$(address x)
        hold a 1500
        free_it x
        buffer y $mib p b
        check "other memory before the free is over" "$(address y)" != "$before"
        until_idle a
        buffer z $mib p b
        same "after it" $how "$(address z)" "$before"
        away p y z
    done
}

internal() {
    section "Reuse: allow_internal_dependencies"
    for how in on off; do
        does "policy $how: a pool of 64 MiB; 40 MiB freed on a, which is busy; b allocates 40 MiB"
        pool p ",\"max_bytes\":$((64 * mib))$(reuse_json allow_internal_dependencies $how)"
        buffer x $block p a
        before=$(address x)
        hold a 1500
        free_it x
        ask POST "$base/buffers" "{\"name\":\"y\",\"bytes\":$block,\"pool\":\"p\",\"stream\":\"b\"}"
        if [ $how = on ]; then
            check "b is made to wait for a, and is given the memory" "$status" = 201
            check "the same memory" "$(address y)" = "$before"
            until_idle a
            away p y
        else
            check "the pool is out of memory" "$(text code)" = out_of_memory
            until_idle a
            away p
        fi
    done
}

synchronizing() {
    section "Synchronization makes freed memory every stream's"
    for sync in "$base/streams/a/sync" "$base/sync" /v1/devices/0/sync "$base/events/e/sync"; do
        does "all policies off: freed on a, POST $sync, allocated on b"
        pool p "$(reuse_json none off)"
        buffer x $block p a
        before=$(address x)
        free_it x
        must POST "$base/events/e/record" '{"stream":"a"}'
        must POST "$sync"
        buffer y $block p b
        check "the same memory" "$(address y)" = "$before"
        away p y
    done
}

# An export is bound to a time in place of a connection, so that a script can have it.
sharing() {
    section "Shared memory, freed in both orders"
    must POST "$base/buffers" '{"name":"x","bytes":1048576,"kind":"ipc"}'
    ask POST "$base/buffers/x/export" '{"ttl_s":60}'
    if [ "$status" != 201 ] && [ "$status" != 200 ]; then
        skip "no export here: $(text detail)"
        free_it x
        return
    fi
    does "the importer ends first, then the buffer is deleted"
    lease=$(text lease)
    ask DELETE "$base/buffers/x"
    check "while it is exported the buffer stays" "$status" = 409
    must DELETE "/v1/leases/$lease"
    ask DELETE "$base/buffers/x"
    check "after the lease's end it goes" "$status" = 204
    does "the buffer is deleted first, with ?when=unmapped"
    must POST "$base/buffers" '{"name":"x","bytes":1048576,"kind":"ipc"}'
    must POST "$base/buffers/x/export" '{"ttl_s":60}'
    lease=$(text lease)
    must DELETE "$base/buffers/x?when=unmapped"
    ask GET "$base/buffers/x"
    check "the name is gone" "$status" = 404
    must GET "/v1/leases/$lease"
    check "the importer's memory is not" "$(text lease)" = "$lease"
    must DELETE "/v1/leases/$lease"
    ask GET "/v1/leases/$lease"
    check "with the lease it goes" "$status" = 404
    skip "opening the handle needs a client with a GPU: tests/conformance/import, gpubuf map"
}

peers() {
    section "Access of other devices"
    ask GET /v1/devices/1
    if [ "$status" != 200 ]; then
        skip "there is one device"
        return
    fi
    case $body in
    *'"can_access":true'*) ;;
    *)
        skip "the devices do not reach each other's memory"
        return
        ;;
    esac
    does "device 1 is let in to a pool of device 0, and out again"
    pool p ',"device":0'
    must POST "$base/pools/p/access" '{"device":1,"access":"read_write"}'
    must GET "$base/pools/p"
    check "it may read and write" "$(has '"access":"read_write"')" = yes
    must POST "$base/pools/p/access" '{"device":1,"access":"none"}'
    must GET "$base/pools/p"
    check "it may no longer" "$(has '"access":"read_write"')" = no
    ask POST "$base/pools/p/access" '{"device":0,"access":"none"}'
    check "the pool's own device cannot be shut out" "$status" -ge 400
    away p
}

ask GET /v1
if [ "$status" != 200 ]; then
    echo "no gpubufd at $given: $status $body" >&2
    exit 1
fi
must POST /v1/sessions "{\"name\":\"$session\"}"
trap 'ask DELETE "$base"' EXIT
trap 'exit 1' INT TERM HUP
must POST "$base/streams" '{"name":"a"}'
must POST "$base/streams" '{"name":"b"}'
must POST "$base/events" '{"name":"e"}'

support
default_pool
explicit_pool
trim
watermarks
same_stream
by_event
opportunistic
internal
synchronizing
sharing
peers

printf '\n'
if [ $wrong -eq 0 ]; then echo "All is as the chapter says."; else echo "Something differs."; fi
exit $wrong
