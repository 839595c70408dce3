# railsock: build, tests, checks. `make help` lists the targets.
#
# To add a source, append one line to its layer's list. To add a unit test, append its name
# to UNIT_TESTS and give it a NAME_SRC that lists exactly what it links.
#
#   SAN=address|thread   builds that sanitizer's variant, in build/<SAN>/; address watches for undefined behaviour, too
#   WERROR=1             makes warnings errors; so does CI
#   V=1                  shows whole commands
#   BUILD=DIR            builds there instead of in build/

CONFIG_SRC := \
	config/arena.c \
	config/build.c \
	config/cgroup.c \
	config/env.c \
	config/files.c \
	config/lex.c \
	config/log.c \
	config/read.c \
	config/reason.c \
	config/rules.c \
	config/script.c \
	config/site_key.c \
	config/values.c \
	config/words.c \

# bison grammars of the config layer; config/gram.y gives gram.c and gram.h in build/<variant>/.
CONFIG_GRAMMAR := config/gram.y

RSOCK_SRC := \
	rsock/copy.c \
	rsock/own.c \
	rsock/section.c \
	rsock/valgrind.c \
	rsock/waitv.c \
	rsock/loop.c \
	rsock/loop_common.c \
	rsock/loop_epoll.c \
	rsock/loop_spawn.c \
	rsock/loop_timer.c \
	rsock/loop_uring.c \
	rsock/loop_watch.c \
	rsock/shard.c \
	rsock/shm_accept.c \
	rsock/shm_bell.c rsock/shm_own.c \
	rsock/shm_ctl.c \
	rsock/shm_diag.c \
	rsock/shm_map.c \
	rsock/shm_msg.c \
	rsock/shm_peer.c \
	rsock/shm_peer_bell.c \
	rsock/strange.c \
	rsock/shm_rdv.c \
	rsock/shm_ring.c \
	rsock/shm_wire.c \
	rsock/unix_names.c \
	rsock/verbs_bye.c \
	rsock/verbs_channel.c \
	rsock/verbs_cm.c \
	rsock/verbs_setup.c \
	rsock/verbs_cq.c \
	rsock/verbs_dev.c \
	rsock/verbs_fork.c \
	rsock/verbs_dl.c \
	rsock/verbs_host.c \
	rsock/verbs_listen.c \
	rsock/verbs_mind.c \
	rsock/verbs_part.c \
	rsock/verbs_pin.c \
	rsock/verbs_post.c \
	rsock/verbs_room.c \
	rsock/verbs_probe.c \
	rsock/verbs_rail.c \
	rsock/verbs_route.c \
	rsock/verbs_recv.c \
	rsock/verbs_wire.c \

FB_SRC := \
	ipoib_fallback/address.c \
	ipoib_fallback/budget.c \
	ipoib_fallback/call.c \
	ipoib_fallback/quick.c \
	ipoib_fallback/processors.c \
	ipoib_fallback/quota.c \
	ipoib_fallback/counts.c \
	ipoib_fallback/crowd.c \
	ipoib_fallback/worth.c \
	ipoib_fallback/end.c \
	ipoib_fallback/exit.c \
	ipoib_fallback/pin.c \
	ipoib_fallback/find.c \
	ipoib_fallback/frail.c \
	ipoib_fallback/grow.c \
	ipoib_fallback/harass.c \
	ipoib_fallback/heat.c \
	ipoib_fallback/given.c \
	ipoib_fallback/heir.c \
	ipoib_fallback/heir_ask.c \
	ipoib_fallback/heir_child.c \
	ipoib_fallback/hold.c \
	ipoib_fallback/settings.c \
	ipoib_fallback/sleep.c \
	ipoib_fallback/io.c \
	ipoib_fallback/iov.c \
	ipoib_fallback/linger.c \
	ipoib_fallback/memory.c \
	ipoib_fallback/netns.c \
	ipoib_fallback/owed.c \
	ipoib_fallback/plain.c \
	ipoib_fallback/killed.c \
	ipoib_fallback/link.c \
	ipoib_fallback/lock.c \
	ipoib_fallback/proof.c \
	ipoib_fallback/prove.c \
	ipoib_fallback/pubfile.c \
	ipoib_fallback/rdv.c \
	ipoib_fallback/rdv_rail.c \
	ipoib_fallback/rdv_accept.c \
	ipoib_fallback/reach.c \
	ipoib_fallback/ready.c \
	ipoib_fallback/rule.c \
	ipoib_fallback/rx.c \
	ipoib_fallback/rx_ahead.c \
	ipoib_fallback/rx_end.c \
	ipoib_fallback/rx_frame.c \
	ipoib_fallback/rx_front.c \
	ipoib_fallback/rx_feed.c \
	ipoib_fallback/rx_shown.c \
	ipoib_fallback/peer.c \
	ipoib_fallback/share.c \
	ipoib_fallback/silent.c \
	ipoib_fallback/siphash.c \
	ipoib_fallback/sleepers.c \
	ipoib_fallback/stream.c \
	ipoib_fallback/spin.c \
	ipoib_fallback/stall.c \
	ipoib_fallback/switch_fsm.c \
	ipoib_fallback/tap.c \
	ipoib_fallback/tap_link.c \
	ipoib_fallback/tx.c \
	ipoib_fallback/tx_board.c \
	ipoib_fallback/tx_leave.c \
	ipoib_fallback/wait.c \
	ipoib_fallback/wake.c \


# The table of intercepted symbols is preload/calls.def.
PRELOAD_SRC := \
	preload/pl_clone.c \
	preload/pl_ctl.c \
	preload/pl_epoll.c \
	preload/pl_epoll_life.c \
	preload/pl_epoll_filter.c \
	preload/pl_epoll_list.c preload/pl_epoll_place.c \
	preload/pl_epoll_nest.c \
	preload/pl_epoll_pool.c \
	preload/pl_epoll_ready.c \
	preload/pl_epoll_reg.c \
	preload/pl_epoll_shard.c \
	preload/pl_epoll_wait.c \
	preload/pl_exec.c \
	preload/pl_heir.c \
	preload/pl_fd.c \
	preload/pl_foreign.c \
	preload/pl_hold.c \
	preload/pl_init.c \
	preload/pl_iov.c \
	preload/pl_made.c \
	preload/pl_number.c \
	preload/pl_passive.c \
	preload/pl_poll.c \
	preload/pl_poll_arm.c preload/pl_poll_ask.c preload/pl_poll_serve.c \
	preload/pl_poll_words.c \
	preload/pl_process.c \
	preload/pl_real.c \
	preload/pl_recv.c preload/pl_ring.c \
	preload/pl_recv_none.c \
	preload/pl_recvmmsg.c \
	preload/pl_select.c \
	preload/pl_rights.c \
	preload/pl_send.c \
	preload/pl_sendfile.c \
	preload/pl_shell.c \
	preload/pl_signal.c \
	preload/pl_signal_old.c \
	preload/pl_sock.c \
	preload/pl_aio.c \
	preload/pl_stdio.c \
	preload/pl_syscall.c \
	preload/pl_table.c \
	preload/pl_thread.c preload/pl_cancel.c \
	preload/pl_vfork.c \
	preload/pl_wait.c \


# build/railsock is linked once tools/railsock.c, which has main(), is here.
TOOL_SRC := \
	tools/railsock.c \
	tools/check.c \
	config/print.c \
	tools/ab.c \
	tools/budget_look.c \
	tools/profile.c \
	tools/report.c \
	tools/room.c \
	tools/rules_look.c \
	tools/doctor.c \
	tools/doctor_host.c \
	tools/doctor_ipoib.c \
	tools/doctor_line.c \
	tools/doctor_own.c \
	tools/doctor_peer.c \
	tools/doctor_program.c \
	tools/doctor_rail.c \
	tools/doctor_rdma.c \
	tools/elf_look.c \
	tools/json.c \
	tools/library.c \
	tools/run.c \
	tools/run_child.c \
	tools/run_witness.c \
	tools/script.c \
	tools/stat.c \
	tools/stat_address.c \
	tools/stat_derive.c \
	tools/stat_filter.c \
	tools/stat_json.c \
	tools/stat_life.c \
	tools/stat_prometheus.c \
	tools/stat_read.c \
	tools/stat_table.c \
	tools/stat_total.c \
	tools/stat_watch.c \
	tools/tap.c \
	tools/tap_ask.c \
	tools/tap_pcapng.c \
	tools/tap_wish.c \
	tools/lab.c \
	tools/lab_barrier.c \
	tools/lab_config.c \
	tools/lab_ctl.c \
	tools/lab_host.c \
	tools/lab_hub.c \
	tools/lab_image.c \
	tools/lab_lines.c \
	tools/lab_run.c \
	tools/lab_session.c \
	tools/lab_tty.c \

MAN_PAGES := \
	tools/man/railsock.1 \
	tools/man/railsock-ab.1 \
	tools/man/railsock-check.1 \
	tools/man/railsock-doctor.1 \
	tools/man/railsock-lab.1 \
	tools/man/railsock-run.1 \
	tools/man/railsock-stat.1 \
	tools/man/railsock-tap.1 \
	tools/man/railsock.conf.5 \
	tools/man/railsock.7 \

EXAMPLES := \
	tools/examples/railsock.conf \
	tools/examples/service.conf \

# Scripts that the command runs, installed under share/railsock/.
TOOL_SHARE := \
	tools/ab \
	tools/ab_html.py \
	tools/ab_legs.py \
	tools/ab_metrics.py \
	tools/ab_processes.py \
	tools/ab_show.py \
	tools/ab_stats.py \
	tools/lab-guest \
	tools/lab-image \

# Each NAME here is built from NAME_SRC, run by tests/run where tests/LIST says so.
UNIT_TESTS := \
	shim_test \
	env_test \
	cgroup_test \
	log_write_test \
	rules_test \
	rules_own_test \
	site_key_test \
	rules_fuzz_test \
	reason_test \
	stat_test \
	stat_life_test \
	stat_show_test \
	doctor_ipoib_test \
	loop_test \
	loop_life_test \
	loop_lost_test \
	shard_test \
	shard_foreign_test \
	shm_ring_test \
	shm_traffic_test \
	shm_rdv_test \
	shm_processes_test \
	find_test \
	stream_test \
	stream_end_test \
	stream_shut_test \
	stream_nagle_test \
	stream_close_test \
	stream_crowded_test \
	stream_killed_test \
	stream_grow_test \
	stream_plain_test \
	stream_worth_test \
	stream_short_test \
	stream_pieces_test \
	stream_leave_test \
	stream_again_test \
	stream_ahead_test \
	stream_quota_test \
	stream_stall_test \
	stream_tally_test \
	stream_for_good_test \
	tap_test \
	tap_file_test \
	epoll_test \
	epoll_instances_test \
	epoll_shard_test \
	epoll_switch_test \
	epoll_spin_test \
	epoll_stress_test \
	poll_crowd_test \
	poll_test \
	poll_signal_test \
	poll_words_test \
	select_test \
	own_test \
	table_test \
	siphash_test \
	processors_test \
	quota_test \
	silent_test \
	share_test \
	strange_test \
	frail_test \
	verbs_bye_test \
	verbs_pin_test \
	verbs_dev_test \
	verbs_cm_test \
	verbs_cq_test \
	verbs_cq_order_test \
	verbs_dl_test \
	verbs_host_test \
	verbs_mind_test \
	verbs_listen_test \
	verbs_post_test \
	proof_test \
	section_test \
	sleepers_test \
	iov_test \
	past_test \
	spin_over_test \
	spin_test \
	fsm_test \
	sim_test \

# poll, select and epoll over a fake engine.
READINESS_SRC := \
	$(filter preload/pl_epoll%.c preload/pl_poll%.c $(addprefix preload/pl_,made.c number.c \
	    real.c select.c table.c wait.c),$(PRELOAD_SRC)) \
	tests/unit/epoll_fake.c \
	tests/unit/epoll_fake_shard.c \
	tests/unit/heir_fake.c \
	ipoib_fallback/crowd.c \
	ipoib_fallback/lock.c \
	rsock/own.c \
	rsock/section.c \
	rsock/valgrind.c \
	rsock/waitv.c \


epoll_test_SRC := tests/unit/epoll_test.c $(READINESS_SRC)
epoll_instances_test_SRC := tests/unit/epoll_instances_test.c $(READINESS_SRC)
epoll_shard_test_SRC := tests/unit/epoll_shard_test.c $(READINESS_SRC)
epoll_switch_test_SRC := tests/unit/epoll_switch_test.c $(READINESS_SRC)
epoll_spin_test_SRC := tests/unit/epoll_spin_test.c $(READINESS_SRC)
epoll_stress_test_SRC := tests/unit/epoll_stress_test.c $(READINESS_SRC)
poll_test_SRC := tests/unit/poll_test.c $(READINESS_SRC)
poll_crowd_test_SRC := tests/unit/poll_crowd_test.c $(READINESS_SRC)
poll_signal_test_SRC := tests/unit/poll_signal_test.c $(READINESS_SRC)
poll_words_test_SRC := tests/unit/poll_words_test.c $(READINESS_SRC)
select_test_SRC := tests/unit/select_test.c $(READINESS_SRC)

siphash_test_SRC := tests/unit/siphash_test.c ipoib_fallback/siphash.c
silent_test_SRC := tests/unit/silent_test.c ipoib_fallback/silent.c ipoib_fallback/peer.c
processors_test_SRC := tests/unit/processors_test.c ipoib_fallback/processors.c rsock/own.c
quota_test_SRC := tests/unit/quota_test.c ipoib_fallback/quota.c rsock/own.c
strange_test_SRC := tests/unit/strange_test.c rsock/strange.c rsock/own.c
share_test_SRC := tests/unit/share_test.c ipoib_fallback/share.c
frail_test_SRC := tests/unit/frail_test.c ipoib_fallback/frail.c ipoib_fallback/peer.c
verbs_bye_test_SRC := \
	rsock/copy.c \
	tests/unit/verbs_bye_test.c \
	rsock/verbs_bye.c \
	rsock/verbs_post.c \
	rsock/verbs_rail.c \
	rsock/verbs_recv.c \
	rsock/verbs_room.c \
	rsock/verbs_wire.c \

verbs_pin_test_SRC := tests/unit/verbs_pin_test.c rsock/verbs_pin.c rsock/own.c
verbs_dev_test_SRC := tests/unit/verbs_dev_test.c rsock/verbs_dev.c rsock/own.c
verbs_cq_test_SRC := tests/unit/verbs_cq_test.c tests/unit/fake_adapter.c rsock/verbs_cq.c
verbs_cq_order_test_SRC := tests/unit/verbs_cq_order_test.c tests/unit/fake_adapter.c rsock/verbs_cq.c
verbs_post_test_SRC := tests/unit/verbs_post_test.c rsock/verbs_post.c rsock/verbs_room.c
verbs_listen_test_SRC := tests/unit/verbs_listen_test.c rsock/verbs_listen.c
verbs_dl_test_SRC = tests/unit/verbs_dl_test.c rsock/verbs_dl.c $(LOOP_TEST_SRC)
verbs_host_test_SRC := tests/unit/verbs_host_test.c rsock/verbs_host.c
verbs_mind_test_SRC := tests/unit/verbs_mind_test.c rsock/verbs_mind.c rsock/own.c
verbs_cm_test_SRC := \
	tests/unit/verbs_cm_test.c \
	rsock/verbs_channel.c \
	rsock/verbs_cm.c \
	rsock/verbs_setup.c \
	rsock/verbs_route.c \
	rsock/shm_diag.c \
	rsock/own.c \
	config/reason.c \

proof_test_SRC := \
	tests/unit/proof_test.c \
	ipoib_fallback/proof.c \
	ipoib_fallback/siphash.c \

iov_test_SRC := tests/unit/iov_test.c ipoib_fallback/iov.c rsock/copy.c
spin_test_SRC := tests/unit/spin_test.c
spin_over_test_SRC := tests/unit/spin_over_test.c ipoib_fallback/spin.c
past_test_SRC := tests/unit/past_test.c

fsm_test_SRC := \
	tests/unit/fsm_test.c \
	ipoib_fallback/switch_fsm.c \

# The engine without its system calls, the wires and the progress thread, over simulated ones.
sim_test_SRC := \
	tests/sim/sim_test.c \
	rsock/copy.c \
	tests/sim/sim_app.c \
	tests/sim/sim_recv.c \
	tests/sim/sim_send.c \
	tests/sim/sim_shrink.c \
	tests/sim/sim_loop.c \
	tests/sim/sim_rdv.c \
	tests/sim/sim_run.c \
	tests/sim/sim_tcp.c \
	tests/sim/sim_wire.c \
	$(filter-out ipoib_fallback/pubfile.c ipoib_fallback/crowd.c ipoib_fallback/given.c ipoib_fallback/heir.c ipoib_fallback/heir_ask.c ipoib_fallback/heir_child.c ipoib_fallback/hold.c ipoib_fallback/processors.c ipoib_fallback/quota.c ipoib_fallback/tap_link.c,$(FB_SRC)) \
	rsock/section.c \
	rsock/valgrind.c \
	rsock/waitv.c \
	$(CONFIG_SRC) \
	$(CONFIG_GRAMMAR) \

# Everything but the intercepting layer.
ENGINE_SRC := $(FB_SRC) $(RSOCK_SRC) $(CONFIG_SRC) $(CONFIG_GRAMMAR)

find_test_SRC := tests/unit/find_test.c $(ENGINE_SRC)
stream_test_SRC := tests/unit/stream_test.c $(ENGINE_SRC)
stream_end_test_SRC := tests/unit/stream_end_test.c $(ENGINE_SRC)
stream_shut_test_SRC := tests/unit/stream_shut_test.c $(ENGINE_SRC)
stream_nagle_test_SRC := tests/unit/stream_nagle_test.c $(ENGINE_SRC)
stream_close_test_SRC := tests/unit/stream_close_test.c $(ENGINE_SRC)
stream_crowded_test_SRC := tests/unit/stream_crowded_test.c $(ENGINE_SRC)
stream_killed_test_SRC := tests/unit/stream_killed_test.c $(ENGINE_SRC)
stream_grow_test_SRC := tests/unit/stream_grow_test.c $(ENGINE_SRC)
stream_plain_test_SRC := tests/unit/stream_plain_test.c $(ENGINE_SRC)
stream_worth_test_SRC := tests/unit/stream_worth_test.c $(ENGINE_SRC)
stream_pieces_test_SRC := tests/unit/stream_pieces_test.c $(ENGINE_SRC)
stream_short_test_SRC := tests/unit/stream_short_test.c $(ENGINE_SRC)
stream_leave_test_SRC := tests/unit/stream_leave_test.c $(ENGINE_SRC)
tap_test_SRC := tests/unit/tap_test.c $(ENGINE_SRC) tools/tap_ask.c
tap_file_test_SRC := tests/unit/tap_file_test.c tools/room.c tools/stat_table.c tools/stat_total.c tools/tap_pcapng.c config/reason.c
stream_again_test_SRC := tests/unit/stream_again_test.c $(ENGINE_SRC)
stream_ahead_test_SRC := tests/unit/stream_ahead_test.c $(ENGINE_SRC)
stream_quota_test_SRC := tests/unit/stream_quota_test.c $(ENGINE_SRC)
stream_stall_test_SRC := tests/unit/stream_stall_test.c $(ENGINE_SRC)
stream_tally_test_SRC := tests/unit/stream_tally_test.c $(ENGINE_SRC)
stream_for_good_test_SRC := tests/unit/stream_for_good_test.c $(ENGINE_SRC)

table_test_SRC := \
	tests/unit/table_test.c \
	tests/unit/heir_fake.c \
	preload/pl_made.c \
	preload/pl_table.c \
	rsock/own.c \
	rsock/section.c \
	rsock/valgrind.c \
	rsock/waitv.c \

own_test_SRC := tests/unit/own_test.c rsock/own.c
sleepers_test_SRC := tests/unit/sleepers_test.c
section_test_SRC := tests/unit/section_test.c rsock/section.c

shim_test_SRC := \
	tests/unit/shim_test.c \

env_test_SRC := \
	tests/unit/env_test.c \
	config/env.c \
	config/log.c \
	config/values.c \

log_write_test_SRC := \
	tests/unit/log_write_test.c \
	config/env.c \
	config/log.c \
	config/values.c \

rules_test_SRC := \
	tests/unit/rules_test.c \
	config/print.c \
	$(CONFIG_SRC) \
	$(CONFIG_GRAMMAR) \

cgroup_test_SRC := tests/unit/cgroup_test.c config/cgroup.c

rules_own_test_SRC := \
	tests/unit/rules_own_test.c \
	$(CONFIG_SRC) \
	$(CONFIG_GRAMMAR) \

site_key_test_SRC := \
	tests/unit/site_key_test.c \
	$(CONFIG_SRC) \
	$(CONFIG_GRAMMAR) \

rules_fuzz_test_SRC := \
	tests/unit/rules_fuzz_test.c \
	config/print.c \
	$(CONFIG_SRC) \
	$(CONFIG_GRAMMAR) \

reason_test_SRC := \
	tests/unit/reason_test.c \
	config/reason.c \

stat_test_SRC := tests/unit/stat_test.c tools/stat_address.c tools/stat_life.c tools/stat_read.c

stat_life_test_SRC := tests/unit/stat_life_test.c tools/stat_address.c tools/stat_life.c tools/stat_read.c

doctor_ipoib_test_SRC := tests/unit/doctor_ipoib_test.c tools/doctor_ipoib.c tools/doctor_line.c

stat_show_test_SRC := \
	tests/unit/stat_show_test.c \
	tools/json.c \
	tools/room.c \
	tools/stat_address.c \
	tools/stat_derive.c \
	tools/stat_filter.c \
	tools/stat_json.c \
	tools/stat_life.c \
	tools/stat_prometheus.c \
	tools/stat_read.c \
	tools/stat_table.c \
	tools/stat_total.c \
	config/reason.c \

# The progress thread, and the shm wire with all that it stands on.
LOOP_TEST_SRC := \
	config/env.c \
	config/log.c \
	config/values.c \
	rsock/loop.c \
	rsock/loop_common.c \
	rsock/loop_epoll.c \
	rsock/loop_spawn.c \
	rsock/loop_timer.c \
	rsock/loop_uring.c \
	rsock/loop_watch.c \
	rsock/own.c \
	rsock/section.c \
	rsock/shard.c \
	rsock/valgrind.c \

SHM_TEST_SRC := $(LOOP_TEST_SRC) $(filter rsock/shm_%,$(RSOCK_SRC)) rsock/strange.c rsock/copy.c rsock/unix_names.c config/reason.c

loop_test_SRC := tests/unit/loop_test.c $(LOOP_TEST_SRC)
loop_life_test_SRC := tests/unit/loop_life_test.c $(LOOP_TEST_SRC)
loop_lost_test_SRC := tests/unit/loop_lost_test.c $(LOOP_TEST_SRC)
shard_test_SRC := tests/unit/shard_test.c $(SHM_TEST_SRC)
shard_foreign_test_SRC := tests/unit/shard_foreign_test.c $(SHM_TEST_SRC)
shm_ring_test_SRC := tests/unit/shm_ring_test.c $(SHM_TEST_SRC)
shm_traffic_test_SRC := tests/unit/shm_traffic_test.c $(SHM_TEST_SRC)
shm_rdv_test_SRC := tests/unit/shm_rdv_test.c $(SHM_TEST_SRC)
shm_processes_test_SRC := tests/unit/shm_processes_test.c $(SHM_TEST_SRC)

# Programs of one file each, which tests/preload_test.sh runs with the library and without.
PRELOAD_PROGRAMS = $(patsubst %.c,$(B)/%,$(wildcard tests/preload/*.c))
# What one of them loads while it runs.
PRELOAD_PLUGINS = $(patsubst %.c,$(B)/%.so,$(wildcard tests/preload/plugin/*.c))

# One program of many cases, which tests/conform/run runs in several ways.
CONFORM_SRC := \
	tests/conform/main.c \
	tests/conform/kit.c \
	tests/conform/kit_bytes.c \
	tests/conform/kit_live.c \
	tests/conform/forms_recv.c \
	tests/conform/receive.c \
	tests/conform/receive_flags.c \
	tests/conform/receive_wait.c \
	tests/conform/forms_send.c \
	tests/conform/send.c \
	tests/conform/send_wait.c \
	tests/conform/forms_ready.c \
	tests/conform/ready.c \
	tests/conform/closed.c \
	tests/conform/kit_epoll.c \
	tests/conform/epoll.c \
	tests/conform/epoll_list.c \
	tests/conform/walks.c \
	tests/conform/walks_asleep.c \
	tests/conform/walks_more.c \
	tests/conform/options.c \
	tests/conform/ends.c \
	tests/conform/addresses.c \
	tests/conform/numbers.c \
	tests/conform/threads.c \
	tests/conform/processes.c \
	tests/conform/killed.c \
	tests/conform/limits.c \
	tests/conform/peers.c \

# ---- variant and flags

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

SAN ?=
VARIANTS := plain address thread
VARIANT := $(or $(SAN),plain)
ifeq ($(filter $(VARIANT),$(VARIANTS)),)
$(error SAN=$(SAN): must be address or thread)
endif
BUILD ?= build
B := $(BUILD)/$(VARIANT)

CC ?= cc
CXX ?= c++
OBJCOPY ?= $(shell $(CC) -print-prog-name=objcopy)
# A name without a folder: it is not there.
LIBURING := $(filter %/liburing.a,$(shell $(CC) -print-file-name=liburing.a))
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
# The list of what is installed is words.
ifneq ($(filter-out 0 1,$(words $(PREFIX)) $(words $(LIBDIR))),)
$(error PREFIX=$(PREFIX) LIBDIR=$(LIBDIR): each must be one folder, without a blank in its name)
endif
JOBS := $(shell nproc)

# _GNU_SOURCE is empty so that a file may also define it itself.
CPPFLAGS_ALL := -I. -I$(B) -D_GNU_SOURCE= $(CPPFLAGS)
COMMON_FLAGS := -g -fPIC -fvisibility=hidden -ftls-model=initial-exec -fexceptions \
	-Wall -Wextra -Wshadow -Wconversion
# Without -fno-sanitize-recover undefined behaviour is only printed, and the test passes.
SANITIZERS_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZERS_thread := -fsanitize=thread
ifneq ($(SAN),)
COMMON_FLAGS += $(SANITIZERS_$(SAN)) -fno-omit-frame-pointer -DRAILSOCK_SANITIZED
endif
# What no caller can ask for: the library stands in the place of the functions that _FORTIFY_SOURCE
# puts others before (-Wp, because some say it so, which comes last), and some of its functions are
# called by assembly alone.
NOT_WITH := -U_FORTIFY_SOURCE -Wp,-U_FORTIFY_SOURCE -fno-lto
CFLAGS_ALL = -std=gnu11 $(OPTIMIZE) $(COMMON_FLAGS) $(CFLAGS) $(NOT_WITH)
CXXFLAGS_ALL := -std=gnu++17 -O2 $(COMMON_FLAGS) $(CXXFLAGS)
LDFLAGS_ALL := -O2 $(COMMON_FLAGS) $(LDFLAGS)
OPTIMIZE := -O2
# Tests that only call what is tested are compiled in less time so, and run no longer.
$(B)/tests/unit/%.o $(B)/tests/conform/%.o: OPTIMIZE := -O1
# Not part of FLAGS_FILE: `make` and `make test` share their objects.
WERROR_FLAG := $(if $(or $(CI),$(filter 1,$(WERROR))),-Werror)
# -z defs: whatever else the library needs has to be opened at run time.
SO_LDFLAGS := -shared -Wl,-soname,librailsock.so -Wl,-z,defs -Wl,--as-needed
SO_LIBS := -ldl -lpthread
VERSION_SCRIPT := -Wl,--version-script=$(B)/preload.map

# ---- products

# The objects of sources and grammars.
objs = $(patsubst %.c,$(B)/%.o,$(filter %.c,$(1))) \
	$(patsubst %.cc,$(B)/%.o,$(filter %.cc,$(1))) \
	$(patsubst %.y,$(B)/%.o,$(notdir $(filter %.y,$(1))))

CONFIG_OBJ := $(call objs,$(CONFIG_SRC) $(CONFIG_GRAMMAR))
SO_OBJ := $(CONFIG_OBJ) $(call objs,$(RSOCK_SRC) $(FB_SRC) $(PRELOAD_SRC))
# doctor asks peers as the library does, by its wires.
TOOL_OBJ := $(call objs,$(TOOL_SRC) $(RSOCK_SRC)) $(CONFIG_OBJ)
SHIM_OBJ := $(call objs,tests/shim/main.cc)
GRAMMAR_H := $(patsubst %.y,$(B)/%.h,$(notdir $(CONFIG_GRAMMAR)))
# What tests/LIST does not run in this variant is not built in it, either.
NOT_HERE := $(shell awk -v v=,$(VARIANT), '$$1 == "unit" && match($$0, /variants=[^ ]*/) \
	{ if (!index("," substr($$0, RSTART + 9, RLENGTH - 9) ",", v)) print $$2 }' tests/LIST)
TEST_BIN := $(addprefix $(B)/tests/,$(filter-out $(NOT_HERE),$(UNIT_TESTS)))

# A product whose first source is not here yet is left out; the objects are built anyway.
HAVE_SO := $(PRELOAD_SRC)
HAVE_TOOL := $(filter tools/railsock.c,$(TOOL_SRC))
PRODUCTS := $(if $(HAVE_SO),$(B)/librailsock.so) $(if $(HAVE_TOOL),$(B)/railsock)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all tests help demo test lint format install uninstall deb deb-test model torture conform fuzz bench lab-faults clean lab-rules apps FORCE

# Hard links: through a symbolic link the command would look for its files beside build/plain/.
ifeq ($(VARIANT),plain)
TOP_PRODUCTS := $(patsubst $(B)/%,$(BUILD)/%,$(PRODUCTS))
$(TOP_PRODUCTS): $(BUILD)/%: $(B)/%
	$(call run,ln,ln -f $< $@)
endif
all: $(SO_OBJ) $(TOOL_OBJ) $(PRODUCTS) $(TOP_PRODUCTS)

tests: $(TEST_BIN) $(B)/tests/torture_linked $(if $(SAN),,$(B)/tests/conform_cases $(PRELOAD_PROGRAMS) $(PRELOAD_PLUGINS))

# ---- rules

# run,WORD,COMMAND: shows WORD and the product, or the whole command.
ifeq ($(V),1)
run = $(2)
else
run = @printf '%-8s%s\n' $(1) $@; $(2)
endif

FLAGS_TEXT := $(CC) $(CXX) $(OBJCOPY) $(LIBURING) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(CXXFLAGS_ALL) $(LDFLAGS_ALL)
FLAGS_FILE := $(B)/flags

# Rewritten only when the flags differ, so that only then everything is rebuilt.
$(FLAGS_FILE): FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS_TEXT)' | cmp -s - $@ || echo '$(FLAGS_TEXT)' >$@

$(B)/%.o: %.c $(FLAGS_FILE) | $(GRAMMAR_H)
	@mkdir -p $(@D)
	$(call run,cc,$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(WERROR_FLAG) -MMD -MP -c -o $@ $<)

# With what it needs of liburing, whose names stay its own: preload/pl_ring.c stands in the place of
# some of them. Where its archive is not there the progress thread uses epoll.
$(B)/rsock/loop_uring.o: rsock/loop_uring.c $(FLAGS_FILE)
	@mkdir -p $(@D)
	$(call run,cc,$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(WERROR_FLAG) $(if $(LIBURING),,-DRAILSOCK_WITHOUT_URING) \
	    -MMD -MP -MF $(@:.o=.d) -MT $@ -c -o $@.alone $<)
	@$(if $(LIBURING),,echo 'no liburing.a for $(CC): epoll in place of io_uring')
	@$(CC) -r -nostdlib -o $@ $@.alone $(LIBURING)
	@$(OBJCOPY) --wildcard --localize-symbol='io_uring_*' --localize-symbol='__io_uring_*' $@

$(B)/%.o: $(B)/%.c $(FLAGS_FILE) | $(GRAMMAR_H)
	$(call run,cc,$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(WERROR_FLAG) -MMD -MP -c -o $@ $<)

$(B)/%.o: %.cc $(FLAGS_FILE)
	@mkdir -p $(@D)
	$(call run,c++,$(CXX) -I. $(CPPFLAGS) $(CXXFLAGS_ALL) $(WERROR_FLAG) -MMD -MP -c -o $@ $<)

$(B)/%.c $(B)/%.h &: config/%.y
	@mkdir -p $(@D)
	$(call run,bison,bison -Wall $(if $(WERROR_FLAG),-Werror) --defines=$(B)/$*.h -o $(B)/$*.c $<)

# The preprocessor reads the table as the compiler does: comments, #if and long lines work.
$(B)/preload.map: preload/calls.def
	@mkdir -p $(@D)
	@printf '%-8s%s\n' map $@
	@$(CC) -E -P -undef -x c '-DCALL(ret, name, params, args, class)=@ name @' $< | tr '@' '\n' | \
	    awk 'BEGIN { print "{ global:" } \
	        NF == 1 && $$1 ~ /^[A-Za-z_][A-Za-z_0-9]*$$/ { print "    " $$1 ";"; n++ } \
	        END { print "  local: *; };"; exit !n }' >$@

$(B)/librailsock.so: $(SO_OBJ) $(B)/preload.map
	$(call run,link,$(CC) $(LDFLAGS_ALL) $(SO_LDFLAGS) $(VERSION_SCRIPT) -o $@ $(SO_OBJ) $(SO_LIBS))

$(B)/railsock: $(TOOL_OBJ)
	$(call run,link,$(CC) $(LDFLAGS_ALL) -o $@ $^ $(SO_LIBS))

# NAME_LIBS, if given, are linked in addition.
define unit_test
$$(B)/tests/$(1): $$(call objs,$$($(1)_SRC)) $$(SHIM_OBJ)
	@mkdir -p $$(@D)
	$$(call run,link,$$(CXX) $$(LDFLAGS_ALL) -o $$@ $$^ $$($(1)_LIBS) -lgtest -lpthread)
endef
$(foreach t,$(UNIT_TESTS),$(eval $(call unit_test,$(t))))

# The torture program with the library linked into it, which is how a sanitizer can watch both.
$(B)/tests/torture_linked: $(call objs,tests/torture/torture.c) $(SO_OBJ)
	@mkdir -p $(@D)
	$(call run,link,$(CC) $(LDFLAGS_ALL) -o $@ $^ $(SO_LIBS))

# Not a test: what the hardware can do, for `make bench`.
$(B)/tests/shm_pingpong: $(call objs,tests/bench/shm_pingpong.c $(SHM_TEST_SRC))
	@mkdir -p $(@D)
	$(call run,link,$(CC) $(LDFLAGS_ALL) -o $@ $^ $(SO_LIBS))

# Nor this: the ways of copying through a ring.
$(B)/tests/copy_ways: $(call objs,tests/bench/copy_ways.c rsock/copy.c)
	@mkdir -p $(@D)
	$(call run,link,$(CC) $(LDFLAGS_ALL) -o $@ $^ -lpthread)

# Nor this: the kernel's TCP at its best.
$(B)/tests/uring_tcp: $(call objs,tests/bench/uring_tcp.c)
	@mkdir -p $(@D)
	$(call run,link,$(CC) $(LDFLAGS_ALL) -o $@ $^ -luring)

# Nor this: the least that a stream of copies over RDMA WRITE can cost.
$(B)/tests/write_floor: $(call objs,tests/bench/write_floor.c)
	@mkdir -p $(@D)
	$(call run,link,$(CC) $(LDFLAGS_ALL) -o $@ $^ -lrdmacm -libverbs -lpthread)

# Nor these, which are preloaded: the least that sockperf's round trip, nginx's answer, and many
# connections can cost.
$(B)/tests/%_floor.so: $(B)/tests/bench/%_floor.o
	@mkdir -p $(@D)
	$(call run,link,$(CC) $(LDFLAGS_ALL) -shared -o $@ $^)

# The library is preloaded, so no sanitizer.
$(B)/tests/conform_cases: $(call objs,$(CONFORM_SRC))
	@mkdir -p $(@D)
	$(call run,link,$(CC) $(LDFLAGS_ALL) -o $@ $^ -lpthread)

# As a distribution builds its programs, and they pass what no program should.
PRELOAD_CC = $(CC) -std=gnu11 -O2 -D_FORTIFY_SOURCE=2 -D_GNU_SOURCE -Wall -Wextra -Wno-nonnull -Wno-unused-result \
	$(WERROR_FLAG) -MMD -MP
$(PRELOAD_PROGRAMS): $(B)/%: %.c
	@mkdir -p $(@D)
	$(call run,cc,$(PRELOAD_CC) -o $@ $< -lpthread)
$(PRELOAD_PLUGINS): $(B)/%.so: %.c
	@mkdir -p $(@D)
	$(call run,cc,$(PRELOAD_CC) -fPIC -shared -o $@ $< -lpthread)
-include $(addsuffix .d,$(PRELOAD_PROGRAMS)) $(PRELOAD_PLUGINS:.so=.d)

# Every object that anything above names.
-include $(patsubst %.o,%.d,$(sort $(SO_OBJ) $(TOOL_OBJ) $(SHIM_OBJ) $(B)/tests/torture/torture.o \
	$(B)/tests/bench/shm_pingpong.o $(B)/tests/bench/uring_tcp.o $(B)/tests/bench/trip_floor.o $(B)/tests/bench/answer_floor.o $(B)/tests/bench/ring_floor.o \
	$(B)/tests/bench/write_floor.o $(B)/tests/bench/copy_ways.o \
	$(call objs,$(CONFORM_SRC)) \
	$(foreach t,$(UNIT_TESTS),$(call objs,$($(t)_SRC)))))

# ---- what people and CI call

# A recursive make on every core, unless the caller said how many.
SUBMAKE = $(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))
# For a target that is a script of its own.
script = @if [ -f $(1) ] && [ -x $(1) ]; then RAILSOCK_TEST_BUILD=$(BUILD) exec $(1); else \
	echo 'make $@: $(1) is missing, so there is nothing to run' >&2; exit 1; fi

help:
	@echo 'all      build/librailsock.so and build/railsock (SAN=address|thread)'
	@echo 'demo     what it does, shown on virtual hosts'
	@echo 'test     every test, unit tests also under the sanitizers; FILTER=TEXT for some'
	@echo 'tests    the unit tests, built but not run'
	@echo 'conform  every behaviour of a socket, without the library and with it in several ways (FILTER= WAYS= SEED=, LAB=1)'
	@echo 'apps     some seventy unmodified programs, checked, as a table (APPS=TEXT, LAB=1: over verbs)'
	@echo 'lint     format and static checks; `make format` mends the format'
	@echo 'model    the model checker on tests/model'
	@echo 'torture  streams that change track at random, until it is stopped (SECONDS= SEED= KINDS=)'
	@echo 'lab-faults   faults between two virtual hosts, as a table (TRIES= FAULTS=)'
	@echo 'lab-rules    address maps and service types between two virtual hosts'
	@echo 'fuzz     random texts through the rules'"'"' parser, random walks of socket calls (SECONDS= SEED=)'
	@echo 'bench    the project'"'"'s figures and what they should be, with plots (BENCH=--native|--lab)'
	@echo 'install  PREFIX=/usr/local LIBDIR=PREFIX/lib DESTDIR=; `make uninstall` takes it away again'
	@echo 'deb      a Debian package in build/deb/; `make deb-test` also tries it'
	@echo 'clean    removes build/'

demo:
	tools/deps build test lab
	+$(SUBMAKE) SAN= all
	$(call script,tools/demo)

test:
	tools/deps build test lab
	+$(SUBMAKE) WERROR=1 SAN= all tests
	+set -e; for san in $(filter-out plain,$(VARIANTS)); do \
	    $(SUBMAKE) WERROR=1 SAN=$$san tests; done
	RAILSOCK_TEST_VARIANTS='$(VARIANTS)' tests/run -b $(BUILD) $(FILTER)

lint: $(GRAMMAR_H)
	tools/deps lint
	tools/lint $(CPPFLAGS_ALL) -std=gnu11

format:
	git ls-files -z '*.c' '*.h' '*.cc' | xargs -0 clang-format -i

# The sanitizers watch the torture program, and the simulation goes on with it. First what takes a
# minute to wait.
torture:
	+$(SUBMAKE) SAN= all $(BUILD)/plain/tests/sim_test
	FORKS_CASES=ahead_late PAIR_SECONDS=100 tests/run -b $(BUILD) forks_test
	+set -e; for san in $(filter-out plain,$(VARIANTS)); do \
	    $(SUBMAKE) SAN=$$san $(BUILD)/$$san/tests/torture_linked; done
	$(call script,tests/torture/run)

# WAYS=off,rail,race,switch SEED=N FILTER=TEXT, LAB=1 (WAYS=verbs,verbs_race,verbs_switch)
conform:
	$(if $(LAB),tools/deps build test lab)
	+$(SUBMAKE) SAN= all $(BUILD)/plain/tests/conform_cases
	RAILSOCK_TEST_BUILD=$(BUILD) tests/conform/run $(if $(LAB),--lab) $(if $(WAYS),-w $(WAYS)) \
	    $(if $(SEED),-s $(SEED)) $(FILTER)

# APPS=TEXT, LAB=1. What it finds is in $(BUILD)/apps/table, or table.verbs.
apps:
	tools/deps build test apps
	+$(SUBMAKE) SAN= all
	APPS='$(APPS)' APPS_LAB='$(LAB)' RAILSOCK_TEST_BUILD=$(BUILD) tests/apps/many

# TRIES=N FAULTS=TEXT
lab-faults:
	tools/deps build test lab
	+$(SUBMAKE) SAN= all
	TRIES='$(TRIES)' FAULTS='$(FAULTS)' RAILSOCK_TEST_BUILD=$(BUILD) tests/faults/run

# The parser, watched, then random walks. WAYS=rail,race,switch
WALK_WAYS := rail,race,switch
fuzz:
	+$(SUBMAKE) SAN=address $(BUILD)/address/tests/rules_fuzz_test
	RAILSOCK_FUZZ_SECONDS=$(or $(SECONDS),60) RAILSOCK_TEST_SEED=$(or $(SEED),$$RANDOM) \
	    $(BUILD)/address/tests/rules_fuzz_test
	+$(SUBMAKE) SAN= all $(BUILD)/plain/tests/conform_cases
	RAILSOCK_TEST_BUILD=$(BUILD) tests/conform/run -w '$(or $(WAYS),$(WALK_WAYS))' -t $(or $(SECONDS),60) \
	    -s $(or $(SEED),$$RANDOM) walks

lab-rules:
	tools/deps build test lab
	+$(SUBMAKE) SAN= all
	RULES_HOSTS=2 RAILSOCK_TEST_BUILD=$(BUILD) tests/rules_lab_test.sh

# Minutes: BENCH=--native or --lab, or --pairs N.
bench:
	tools/deps build test lab bench
	+$(SUBMAKE) SAN= all $(addprefix $(BUILD)/plain/tests/,shm_pingpong copy_ways uring_tcp trip_floor.so answer_floor.so ring_floor.so write_floor)
	RAILSOCK_TEST_BUILD=$(BUILD) tests/bench/run $(BENCH)

model:
	$(call script,$(or $(wildcard tests/$@/run),tests/$@))

# MODE|SOURCE|PLACE of all that is installed; @LIBRARY@ in a source is where the library then is.
LIBRARY := $(LIBDIR)/railsock/librailsock.so

# The command looks there last: LIBDIR need not be below PREFIX.
$(B)/tools/library.o: CPPFLAGS_ALL += -DLIBRARY_INSTALLED='"$(LIBRARY)"'
$(B)/tools/library.o: $(B)/library_place
$(B)/library_place: FORCE
	@mkdir -p $(@D)
	@echo '$(LIBRARY)' | cmp -s - $@ || echo '$(LIBRARY)' >$@

SHARE := $(PREFIX)/share
man_place = $(SHARE)/man/man$(patsubst .%,%,$(suffix $(1)))/$(notdir $(1))
INSTALLED = \
	755|$(B)/railsock|$(PREFIX)/bin/railsock \
	644|$(B)/librailsock.so|$(LIBRARY) \
	$(foreach f,$(TOOL_SHARE),$(if $(filter %.py,$(f)),644,755)|$(f)|$(SHARE)/railsock/$(notdir $(f))) \
	$(foreach f,$(MAN_PAGES),644|$(f)|$(call man_place,$(f))) \
	644|README.md|$(SHARE)/doc/railsock/README.md \
	644|tools/completion.bash|$(SHARE)/bash-completion/completions/railsock \
	$(foreach f,$(EXAMPLES),644|$(f)|$(SHARE)/doc/railsock/examples/$(notdir $(f)))
# Ours alone, or perhaps made by us: they go when they are empty. Those that every prefix has stay.
INSTALLED_DIRS = $(LIBDIR)/railsock $(SHARE)/railsock $(SHARE)/doc/railsock/examples $(SHARE)/doc/railsock \
	$(foreach n,1 5 7,$(SHARE)/man/man$(n)) $(SHARE)/bash-completion/completions $(SHARE)/bash-completion

# Renamed into its place: who starts meanwhile finds the old file or the new one, whole.
install: all
	@while IFS='|' read -r mode from to; do \
	    printf 'install %s\n' "$(DESTDIR)$$to"; \
	    new="$(DESTDIR)$$to.new"; \
	    install -D -m "$$mode" "$$from" "$$new"; \
	    case $$from in tools/examples/*) sed -i 's|@LIBRARY@|$(LIBRARY)|' "$$new" ;; esac; \
	    mv -fT "$$new" "$(DESTDIR)$$to"; \
	done < <(printf '%s\n' $(foreach row,$(INSTALLED),'$(row)'))

uninstall:
	@while IFS='|' read -r _ _ to; do \
	    [ ! -e "$(DESTDIR)$$to" ] || printf 'remove  %s\n' "$(DESTDIR)$$to"; \
	    rm -f "$(DESTDIR)$$to"; \
	done < <(printf '%s\n' $(foreach row,$(INSTALLED),'$(row)'))
	@for dir in $(INSTALLED_DIRS); do \
	    [ ! -d "$(DESTDIR)$$dir" ] || rmdir --ignore-fail-on-non-empty "$(DESTDIR)$$dir"; \
	done

# From a copy of the sources, as debian/ belongs beside them.
deb:
	tools/deps build deb
	tools/package $(BUILD)/deb

deb-test: deb
	tools/deps test lab
	RAILSOCK_TEST_BUILD=$(BUILD) tests/deb_test.sh

clean:
	rm -rf $(BUILD)
