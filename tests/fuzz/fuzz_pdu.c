// SPDX-License-Identifier: MPL-2.0
/* The target behind a stream in memory. The first byte says how: bit 0, from the login on or inside
 * a session; bit 1, with digests computed for it; bits 2 to 4, how finely the bytes arrive; bit 5,
 * the volume keeps its requests until the end; bit 6, a discovery session; bit 7, whoever is
 * not in a session yet has to authenticate himself. The rest is PDUs. With
 * digests, what follows is taken apart by its own length fields so that they can be right. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "codec/crc.h"
#include "fake_env.h"
#include "fake_net.h"
#include "iscsi/iscsi.h"
#include "iscsi/pdu.h"
#include "memory_volume.h"

#define PORTAL "192.0.2.1:3260"
#define TARGET "iqn.2025-01.org.example:one"
#define INITIATOR "InitiatorName=iqn.2025-01.org.example:host\0"
#define KEYS "InitialR2T=No\0MaxOutstandingR2T=4\0MaxRecvDataSegmentLength=1024\0"

enum { IN_SESSION = 1, DIGESTS = 2, HOLD = 32, DISCOVERY = 64, CHAP = 128, VOLUME_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition) {
    if (!condition) {
        abort();
    }
}

static void on_stopped(void *owner) {
    *(bool *)owner = true;
}

static void log_in(struct fake_peer *peer, uint8_t how) {
    static const char normal[] = INITIATOR "TargetName=" TARGET "\0" KEYS;
    static const char digests[] =
        INITIATOR "TargetName=" TARGET "\0" KEYS "HeaderDigest=CRC32C\0DataDigest=CRC32C";
    static const char discovery[] = INITIATOR "SessionType=Discovery";
    const char *text = normal;
    uint32_t length = sizeof(normal);
    if (how & DIGESTS) {
        text = digests;
        length = sizeof(digests);
    } else if (how & DISCOVERY) {
        text = discovery;
        length = sizeof(discovery);
    }
    uint8_t bhs[BHS_BYTES + 512] = {OP_LOGIN | BHS_IMMEDIATE, 0x87};
    put_be24(bhs + AT_DATA_LENGTH, length);
    memcpy(bhs + BHS_BYTES, text, length);
    fake_peer_feed(peer, bhs, BHS_BYTES + length + pad_bytes(length));
}

static void feed_with_digests(struct fake_peer *peer, const uint8_t *data, size_t bytes) {
    uint8_t digest[DIGEST_BYTES];
    while (bytes >= BHS_BYTES) {
        size_t header = BHS_BYTES + bhs_ahs_bytes(data);
        size_t segment = bhs_data_bytes(data) + pad_bytes(bhs_data_bytes(data));
        header = header < bytes ? header : bytes;
        segment = segment < bytes - header ? segment : bytes - header;
        fake_peer_feed(peer, data, header);
        put_digest(digest, crc32c(data, header));
        fake_peer_feed(peer, digest, sizeof(digest));
        if (segment != 0) {
            fake_peer_feed(peer, data + header, segment);
            put_digest(digest, crc32c(data + header, segment));
            fake_peer_feed(peer, digest, sizeof(digest));
        }
        data += header + segment;
        bytes -= header + segment;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0) {
        return 0;
    }
    uint8_t how = data[0];
    struct fake_env fake;
    struct memory_volume volume;
    struct fake_peer peer;
    bool stopped = false;
    fake_env_init(&fake);
    memory_volume_init(&volume, &fake.env, VOLUME_BYTES, 512);
    struct scsi_target *scsi = scsi_target_new(&fake.env);
    need(scsi_lun_add(scsi, 0, &volume.door, &volume.info, NULL) == OK);
    struct iscsi_server *server = iscsi_server_new(&fake.env, &(struct iscsi_options){0});
    need(iscsi_portal_add(server, PORTAL, NULL) == OK);
    need(iscsi_target_add(server, TARGET, scsi, NULL, NULL) == OK);
    if ((how & (CHAP | IN_SESSION)) == CHAP) {
        const struct iscsi_user user = {"alice", "a secret of alice", "us", "a secret of ours"};
        const struct iscsi_rule rule = {.user = "alice"};
        const struct iscsi_access access = {"tank", &rule, 1, &user, 1};
        need(iscsi_target_set_access(server, TARGET, &access, NULL) == OK);
    }
    fake_net_connect(&fake.env, PORTAL, &peer);
    static const size_t pieces[] = {0, 1, 7, 48, 49, 100, 512, 1000};
    peer.read_bytes_max = pieces[how >> 2 & 7];
    if (how & IN_SESSION) {
        log_in(&peer, how);
        fake_env_settle(&fake);
        need(iscsi_session_list(server, NULL, 0) == 1);
    }
    volume.hold = (how & HOLD) != 0;
    if ((how & (DIGESTS | IN_SESSION)) == (DIGESTS | IN_SESSION)) {
        feed_with_digests(&peer, data + 1, bytes - 1);
    } else {
        fake_peer_feed(&peer, data + 1, bytes - 1);
    }
    fake_env_settle(&fake);
    iscsi_server_stop(server, fake.now_ns + NS_PER_S, on_stopped, &stopped);
    fake_env_advance(&fake, 2 * NS_PER_S);
    need(stopped && peer.closed);
    memory_volume_let_go(&volume);
    fake_env_settle(&fake);
    need(scsi_target_outstanding(scsi) == 0);
    iscsi_server_free(server);
    scsi_target_free(scsi);
    fake_peer_free(&peer);
    memory_volume_done(&volume);
    fake_env_done(&fake);
    need(mem_in_use_bytes() == 0);
    return 0;
}
