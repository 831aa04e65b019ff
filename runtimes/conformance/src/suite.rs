//! The cases of the suite, by name: what [`conformance!`](crate::conformance!) makes tests of.

/// Instantiates the suite for a [`Harness`](crate::Harness). With `alone` before it, those cases that measure how tasks
/// are served next to others: in a program of their own, because all clients of a process may share one executor. With
/// `virtual`, those for a runtime in virtual time are run: a case that needs more than that says so, and is ignored.
/// With `behind`, the harness puts agents before servers: a case that is about what is different then says so, and is left out.
/// With `ignored`, and a reason, each case is ignored for that reason, unless it is asked for (`--ignored`).
#[macro_export]
macro_rules! conformance {
    ($harness:ty) => {
        $crate::conformance! { @cases real $harness }
        $crate::conformance_of_recorders! { real $harness }
    };
    (virtual $harness:ty) => {
        $crate::conformance! { @cases virtual $harness }
        $crate::conformance_of_recorders! { virtual $harness }
    };
    (ignored $reason:literal $harness:ty) => {
        $crate::conformance! { @cases (ignored $reason) $harness }
        $crate::conformance_of_recorders! { (ignored $reason) $harness }
    };
    (ignored $reason:literal behind $harness:ty) => {
        $crate::conformance! { @cases (behind $reason) $harness }
        $crate::conformance_of_recorders! { (behind $reason) $harness }
    };
    (alone $harness:ty) => {
        $crate::conformance! { @alone real $harness }
    };
    (ignored $reason:literal alone $harness:ty) => {
        $crate::conformance! { @alone (ignored $reason) $harness }
    };
    (@alone $kind:tt $harness:ty) => {
        $crate::conformance! { @modules $kind $harness,
            flood {
                hellos_without_end_on_the_monitors_socket_starve_nobody,
                hellos_without_end_on_the_round_trip_socket_starve_nobody,
                hellos_without_end_for_a_monitor_that_polls_starve_nobody,
                hellos_without_end_for_connections_starve_nobody,
                large_replies_starve_nobody,
                a_server_that_hangs_up_on_every_awaited_hello_is_checked_a_few_times_a_second,
            }
            siblings {
                a_sibling_waits_little_longer_for_its_socket_beside_pings,
            }
        }
    };
    (@cases $kind:tt $harness:ty) => {
        $crate::conformance! { @modules $kind $harness,
            basics {
                a_command_runs_on_a_checked_out_connection,
                a_returned_connection_is_used_again,
                a_refused_command_leaves_the_connection_usable,
                a_write_that_failed_is_an_error_with_its_place_and_code,
                a_write_concern_that_was_not_satisfied_is_an_error_of_a_kept_connection_too,
                documents_and_values_of_ones_own_are_commands_and_replies,
                a_command_that_is_no_document_is_refused_and_the_connection_stays_usable,
                a_client_tells_its_options_and_its_state,
                an_unacknowledged_command_has_no_reply,
                an_unacknowledged_command_does_not_repeat_an_earlier_reply,
                a_connection_without_a_reply_has_no_last_one,
                a_pinned_connection_is_checked_out_and_in_once,
                a_large_document_goes_and_comes_in_one_piece,
                a_connection_that_was_seen_dead_is_not_given_back,
                a_command_may_have_several_replies_msg_8,
                replies_that_were_cut_off_have_not_ended,
                a_connection_is_looked_at_before_it_is_used_after_idleness,
                #[cfg(unix)]
                a_unix_socket_is_an_address_like_others: "it needs Unix sockets",
            }
            logins {
                the_three_lines_log_in_by_scram_sha_256_under_tls,
                scram_sha_1_logs_in,
                a_certificate_logs_in,
                a_mechanism_of_the_users_own_logs_in,
                a_mechanism_of_the_users_own_logs_in_identities_whatever_theirs_is_called,
                a_wrong_password_is_said_so,
                an_unknown_user_is_said_so,
                a_server_that_calls_itself_an_arbiter_gets_no_command_x_62,
                a_certificate_for_another_host_is_said_so,
                an_authority_that_is_not_trusted_is_said_so,
                a_client_without_tls_is_told_that_the_server_expects_it,
            }
            datagrams {
                the_answer_to_a_datagram_comes_from_whom_it_was_sent_to: "it needs sockets of the system",
            }
            derivations {
                a_hostile_server_makes_a_client_derive_one_key_at_a_time_and_leaves_none_behind: "it needs work that takes time",
                a_derivation_that_takes_too_long_is_said_so: "it needs work that takes time",
                connections_that_start_together_derive_their_keys_once_auth_17,
                closing_breaks_off_a_derivation: "it needs work that takes time",
                the_end_of_the_runtime_breaks_off_a_derivation: "it needs work that takes time",
                more_iterations_than_a_client_allows_are_refused_with_their_number,
            }
            load_balanced {
                a_load_balancer_is_not_checked,
                a_load_balancer_may_be_named_in_code,
                a_timeout_says_what_keeps_the_connections,
                an_error_clears_its_own_service_only,
                an_error_that_comes_with_the_hello_clears_its_service_lb_10,
                a_server_that_is_behind_no_load_balancer_is_said_so,
            }
            unusable {
                a_connection_string_that_cannot_be_used_names_the_option_and_why,
                what_is_ignored_of_a_connection_string_is_told,
                what_has_no_effect_is_told_by_name,
                a_mechanism_that_cannot_be_carried_out_is_refused_at_connect,
                what_gives_up_a_protection_is_told,
                a_callers_own_tls_configuration_is_not_warned_of,
                a_server_that_is_too_old_is_said_so,
                what_is_no_mongodb_is_said_so,
                a_server_that_is_silent_in_the_tls_handshake_is_said_so,
                a_refused_connection_fails_check_outs_in_time,
                a_host_that_cannot_be_resolved_is_named,
                a_server_that_never_accepts_is_given_up,
                a_client_waits_for_a_server_that_comes_late,
            }
            addresses {
                an_address_that_hangs_costs_a_quarter_of_a_second_once,
                an_address_that_refuses_costs_no_time,
                an_error_names_every_address_and_what_was_wrong_with_it,
                an_address_that_there_was_no_time_for_is_named_as_well,
            }
            affinity {
                a_key_keeps_its_connection,
                a_key_waits_for_the_connection_that_it_requires,
                a_held_connection_is_for_others_when_its_time_is_over_or_its_key_ends,
                a_held_connection_is_lent_to_one_that_nothing_else_serves_and_goes_back_to_its_key,
                a_key_without_the_option_is_refused,
            }
            cancellation {
                a_check_out_dropped_before_the_server_is_known_is_forgotten,
                a_dropped_waiter_is_forgotten,
                a_waiter_dropped_after_its_delivery_passes_the_connection_on,
                a_check_out_dropped_after_its_end_disturbs_no_other,
                an_establishment_survives_the_check_out_that_caused_it,
                a_command_dropped_half_way_costs_its_connection,
                a_command_dropped_half_way_leaves_its_session_dirty_ses_8,
                check_outs_dropped_at_random_polls_lose_nothing,
                check_outs_dropped_at_random_polls_are_each_told_to_their_end,
                a_check_out_dropped_at_any_await_loses_nothing,
                a_command_dropped_at_any_await_costs_its_connection_only,
                a_client_dropped_in_the_making_at_any_await_is_forgotten,
                a_close_dropped_at_any_await_leaves_the_client_closed,
            }
            clock_steps {
                a_step_forward_fails_those_whose_time_is_up,
                a_step_forward_replaces_idle_connections,
                a_step_forward_has_the_server_checked_again,
                a_clock_that_steps_tells_of_a_possible_leak_once,
                a_step_back_stops_limits_and_nothing_else,
            }
            drops {
                a_connection_is_dropped_unused,
                a_connection_is_dropped_after_an_error,
                a_pinned_connection_is_dropped_in_the_middle_of_a_command,
                a_client_is_dropped_while_others_wait,
                a_client_is_dropped_before_its_server_is_known,
                a_subscription_is_dropped_unread,
            }
            closing {
                closing_fails_those_who_wait,
                closing_waits_for_connections_in_use,
                closing_cuts_off_what_does_not_come_back,
                closing_gives_up_establishments,
                closing_ends_every_socket,
                a_connection_under_tls_is_closed_with_a_goodbye,
                a_closed_client_keeps_nothing_of_what_it_did,
                closing_under_load_ends_every_operation,
                a_closing_client_ends_the_sessions_that_are_free_and_no_later_ones_x_61,
                the_last_client_dropped_closes_the_pool,
                waits_for_the_end_that_were_dropped_leave_nothing_behind,
            }
            events {
                events_come_in_the_order_of_the_specification,
                a_handler_may_call_the_client,
                a_panic_in_a_handler_goes_no_further,
                a_panic_in_a_handler_hides_no_event_from_other_handlers,
                a_subscription_says_what_it_lost,
                a_handler_that_is_too_slow_learns_how_much_it_missed: "it needs threads",
                a_subscription_counts_what_its_client_has_lost_as_well: "it needs threads",
                whoever_tells_events_leaves_those_of_others_to_a_task: "it needs threads",
                what_a_handler_causes_is_told_though_the_runtime_ends,
                a_subscription_ends_with_its_client,
                a_reader_that_waits_learns_of_the_end,
            }
            command_defaults {
                concerns_and_preference_of_the_options_go_along_with_commands_x_64,
                a_limit_of_the_callers_own_replaces_w_timeout_ms_csot_3,
                a_command_for_users_fails_by_its_write_concern_rwc_8,
                a_read_asks_as_it_was_asked_though_the_server_is_unknown_by_now_sel_34,
            }
            batches {
                documents_of_any_number_are_inserted_in_batches_of_one_operation_bw_9,
                a_batch_that_was_cut_off_is_sent_again_and_written_once,
                a_batch_with_a_write_of_several_documents_runs_once_and_others_are_repeated_bw_10,
                the_first_error_ends_an_ordered_insert_and_says_what_was_done_bw_12,
                an_unordered_insert_goes_on_and_gathers_all_errors_bw_12,
                write_concern_errors_stop_nothing_and_are_told_at_the_end_bw_13,
                what_a_batch_has_written_is_told_though_its_retry_fails_bw_14,
                an_error_of_a_command_ends_an_unordered_insert_too_bw_14,
                all_batches_have_one_limit_of_time_csot_29,
                an_item_that_fits_into_no_message_is_named_bw_4,
                an_item_that_is_no_document_is_named,
                an_operation_without_items_is_an_error_bw_7,
                an_insert_as_an_array_that_is_too_large_is_told_of_sequences_x_169,
                ids_are_made_in_front_where_that_is_asked_for_bw_17,
                writes_without_a_reply_go_in_batches_too_bw_8,
                batches_of_a_transaction_are_committed_together,
                the_results_of_a_bulk_write_are_read_to_their_end_bw_15,
                a_results_cursor_that_fails_is_ended_and_what_was_read_is_told_bw_15,
                an_ordered_error_of_a_bulk_write_ends_its_results_cursor_x_177,
                a_results_cursor_keeps_its_connection_behind_a_load_balancer_bw_15,
                a_bulk_write_that_is_dropped_at_any_moment_leaves_nothing_behind,
            }
            cursors {
                a_cursor_gives_all_documents_in_batches,
                a_cursor_is_a_stream,
                other_commands_make_cursors_too,
                options_replace_what_the_command_says,
                documents_become_values_and_one_that_does_not_fit_is_an_error_of_its_own,
                a_command_without_a_cursor_is_said_so,
                an_exhausted_cursor_returns_its_session_before_its_documents_are_read_ses_3,
                a_cursor_dropped_half_way_is_ended_on_the_server,
                a_cursor_that_is_closed_is_ended_on_the_server_when_the_call_returns,
                a_cursor_dropped_with_its_client_is_ended_on_the_server,
                a_cursor_keeps_no_client_open,
                a_step_of_a_cursor_that_is_dropped_loses_no_document,
                a_refused_get_more_ends_its_cursor,
                a_get_more_that_an_overloaded_server_refuses_three_times_is_an_error_bp_10,
                after_a_network_error_nothing_more_is_sent_for_a_cursor,
                a_cursor_keeps_its_connection_behind_a_load_balancer_lb_13,
                a_failed_cursor_keeps_its_connection_behind_a_load_balancer_lb_14,
                a_tailable_cursor_waits_for_documents,
                an_empty_batch_is_no_end_of_a_tailable_cursor,
                a_session_is_free_between_the_steps_of_its_cursor,
                another_session_is_refused_by_a_cursor_which_goes_on,
                a_step_in_a_session_that_is_dropped_ends_its_cursor,
            }
            cursor_limits {
                a_limit_on_a_cursor_is_for_its_life,
                a_limit_may_be_for_each_iteration_of_a_cursor,
                options_of_a_cursor_that_do_not_go_together_are_refused,
                a_mode_needs_a_limit_and_documents_to_read_csot_16_csot_19,
                a_close_may_have_a_limit_of_its_own_csot_23,
            }
            giving_up {
                a_transaction_that_is_given_up_is_aborted_before_its_session_goes_on,
                a_transaction_that_is_given_up_while_it_is_committed_is_committed,
                an_abort_that_is_given_up_before_it_was_sent_goes_on,
                an_abort_that_has_no_connection_in_time_goes_on,
                a_commit_that_is_given_up_before_it_was_sent_goes_on,
                a_commit_that_could_not_be_sent_is_no_open_transaction_once_its_session_is_dropped,
                a_commit_that_could_not_be_sent_is_not_aborted_behind_a_later_write,
                a_cursor_whose_close_is_given_up_is_ended_on_the_server,
                a_cursor_that_is_given_up_while_its_command_runs_is_ended_on_the_server,
                a_closing_client_ends_the_cursors_that_were_dropped_before,
                a_closing_client_ends_the_transactions_that_were_dropped_before,
                a_closing_client_repeats_an_abort_that_an_overloaded_server_refused,
                a_close_without_patience_waits_for_no_cursor,
                cursors_dropped_with_their_client_are_ended_on_the_server,
                cursors_dropped_while_no_connection_is_free_wait_in_one_place_and_end_by_one_command,
                a_get_more_that_nobody_waits_for_gives_its_connection_back,
                a_tailable_cursor_outlives_a_reader_that_is_busy_for_longer_than_its_limit,
                a_cursor_dropped_during_its_get_more_is_ended_on_the_server,
                a_cursor_closed_during_its_get_more_is_ended_on_the_server_when_the_call_returns,
                a_cursor_dropped_during_its_get_more_behind_a_load_balancer_ends_with_its_connection,
            }
            identities {
                users_share_the_limits_of_a_pool,
                the_least_recently_used_connection_of_another_user_makes_room,
                the_status_names_the_pool_of_each_user,
                a_users_wrong_password_is_nobody_elses_matter,
                the_clients_own_wrong_password_is_nobody_elses_matter,
                a_user_who_was_removed_gets_no_connection,
                a_close_counts_the_connections_of_further_users,
                users_are_served_again_after_their_server_was_gone,
                many_tasks_of_three_users_keep_to_one_limit,
            }
            limits {
                ten_thousand_waiters_are_all_served,
                waiters_are_served_in_their_order,
                a_wait_queue_timeout_says_how_the_pool_looked,
                timeout_ms_cuts_off_a_command,
                a_limit_cuts_off_the_wait_for_a_further_reply,
                timeout_ms_is_told_to_the_server_csot_9,
                a_get_more_is_told_no_limit_csot_9,
                the_time_of_a_check_out_runs_from_its_first_poll,
                a_spent_limit_fails_a_check_out_at_once,
                a_spent_limit_sends_nothing_and_spares_the_connection,
                a_spent_limit_sends_no_command_and_no_write,
                a_limit_of_the_callers_replaces_that_of_the_options,
                a_deadline_bounds_a_check_out_and_its_commands,
                a_limit_that_passes_too_late_cuts_off_nothing,
                timeout_ms_bounds_a_check_out,
            }
            pools_of_a_deployment {
                higher_limits_serve_those_who_wait_at_once_x_70,
                lower_limits_close_what_comes_back_x_70,
                limits_that_contradict_each_other_are_refused_x_70,
                other_members_have_as_many_connections_as_the_primary_x_71,
                a_host_that_nobody_uses_has_no_connections_x_72,
                all_pools_together_keep_to_their_limit_x_73,
                limits_follow_the_primary_x_74,
            }
            pools {
                a_paused_pool_gives_no_connection_cmap_28,
                a_ready_pool_gives_connections,
                a_cleared_pool_waits_for_its_owner_and_says_why,
                a_clear_fails_those_who_wait,
                an_interrupting_clear_cuts_off_a_command_cmap_40,
                a_limit_that_passes_after_an_interruption_does_not_hide_it,
                a_connection_that_was_interrupted_sends_no_further_command,
                a_lost_connection_clears_a_pool_without_a_monitor_sdam_10,
                a_failed_handshake_is_the_check_outs_error_and_not_the_owners,
                a_closed_pool_stays_closed_cmap_21,
                a_pool_has_no_events_of_servers_and_monitors,
                limits_pass_though_nothing_else_is_due,
                idle_connections_are_closed_though_nothing_else_is_due,
                an_idle_pool_sleeps_until_something_is_due,
                a_dropped_pool_leaves_no_task_behind,
                a_service_is_cleared_only_behind_a_load_balancer_lb_8,
                the_last_pool_dropped_closes_it,
            }
            uses {
                each_possible_leak_is_told_once_with_its_holder,
                a_reply_begins_the_time_of_a_possible_leak_anew,
                the_first_byte_of_a_slow_reply_begins_the_time_of_a_possible_leak_anew,
                statistics_say_how_long_the_phases_of_establishing_took,
                a_leak_detection_threshold_of_zero_is_refused,
                an_idle_client_is_not_looked_at_for_leaks,
                statistics_say_how_long_waits_and_uses_took,
            }
            holders {
                a_leak_a_slow_command_and_an_idle_holder_are_each_named,
                a_time_out_says_what_an_establishment_is_at,
                an_operation_is_named_by_label_and_place,
                labels_without_end_are_folded,
                one_that_waits_for_a_server_is_listed_until_it_gives_up,
                without_a_watch_connections_in_use_are_listed_without_who_holds_them,
            }
            refresh {
                an_idle_connection_is_pinged_again_and_again_though_nothing_else_is_due,
                a_ping_that_loses_its_connection_clears_the_pool_sdam_10,
                a_ping_that_takes_too_long_costs_its_connection_alone_sdam_9,
                a_closed_client_gives_up_its_pings,
            }
            resuming {
                after_a_call_of_resume_idle_connections_are_checked_before_use,
                a_wall_clock_that_went_on_alone_has_idle_connections_checked,
                a_wall_clock_that_is_set_by_a_little_is_no_suspension,
            }
            warming {
                a_client_waits_for_its_server_and_for_all_connections,
                without_a_number_it_reaches_the_least_size,
                a_wrong_password_is_its_error,
                more_than_the_greatest_size_is_refused,
                it_waits_for_a_server_that_comes_late,
                without_a_server_it_ends_in_time_and_says_what_is_known,
                a_closed_client_ends_it,
                one_that_is_dropped_leaves_nothing,
            }
            retirement {
                a_connection_is_retired_at_its_age_though_nothing_else_is_due,
                a_connection_is_retired_after_its_last_use,
                all_connections_are_replaced_and_none_in_use_is_cut_off,
            }
            rotation {
                a_new_credential_is_for_connections_yet_to_come_and_retires_the_others,
                a_credential_that_is_refused_changes_nothing,
                a_credential_that_contradicts_itself_is_refused_at_once,
                no_credential_logs_out,
                without_a_server_nothing_is_proven,
                a_server_that_comes_back_is_asked,
                a_password_that_the_server_changed_first_is_set_at_once,
                a_closed_client_takes_no_credential,
                a_close_ends_the_proof_of_a_new_credential,
                two_hundred_tasks_do_not_notice_a_rotation,
            }
            runtimes {
                a_connection_is_dropped_outside_of_any_runtime,
                a_connection_is_dropped_after_its_runtime_ended,
                a_client_outlives_its_runtime,
                those_who_wait_learn_that_the_runtime_has_ended: "it needs threads",
                a_close_that_waits_learns_that_the_runtime_has_ended: "it needs threads",
                a_thousand_who_wait_for_handshakes_learn_that_the_runtime_has_ended,
                a_future_that_another_task_goes_on_with_wakes_that_task,
                several_runtimes_and_threads_share_a_client: "it needs threads",
                a_panicking_task_returns_its_connection: "it needs a runtime that goes on after a panic",
            }
            change_streams {
                a_collection_a_database_and_a_deployment_are_watched_cs_2,
                changes_are_a_stream_and_become_values,
                a_command_that_is_no_change_stream_is_said_so,
                a_step_of_a_change_stream_that_is_dropped_loses_no_change,
                a_step_in_a_session_that_is_dropped_loses_no_change,
                a_stream_goes_on_in_its_session_and_leaves_no_cursor_behind_cs_14_cs_15,
                a_stream_outlives_a_step_whose_time_is_up_csot_25,
                a_stream_outlives_a_step_that_was_dropped_before_its_time_was_up_csot_25,
                a_stream_does_not_wait_for_a_server_that_recovers_x_160,
                a_stream_behind_a_load_balancer_goes_on_over_another_connection,
                a_stream_ends_with_what_it_watches_and_another_starts_after_it_cs_16,
                prose_1_a_stream_tracks_the_token_of_the_last_change,
                prose_2_a_server_that_misses_the_token_ends_the_stream,
                prose_2_a_change_without_a_token_ends_the_stream_cs_8,
                prose_3_a_stream_resumes_once_with_its_command_and_a_token,
                prose_4_an_aggregates_error_is_not_resumed,
                prose_7_an_empty_first_batch_leaves_the_stream_open,
                prose_8_an_error_of_the_old_cursors_end_is_not_told,
                prose_11_behind_a_batch_the_token_is_the_batchs,
                prose_13_within_a_batch_the_token_is_the_changes,
                prose_14_an_unread_batch_leaves_the_token_of_the_command,
                prose_17_a_stream_that_started_after_a_token_and_found_nothing_starts_after_it_again,
                prose_18_a_stream_that_started_after_a_token_and_found_a_change_resumes_after_that,
                prose_19_a_change_that_is_too_large_comes_in_parts_cs_17,
            }
            tailing {
                a_tailable_cursor_outlives_iterations_that_find_nothing_x_152,
                a_tailable_cursor_with_a_wait_of_its_own_outlives_iterations_that_find_nothing_x_152,
            }
            transactions {
                what_is_committed_takes_effect_as_a_whole,
                what_is_aborted_takes_no_effect,
                a_commit_whose_write_concern_is_not_satisfied_is_an_error,
                a_transaction_on_a_standalone_says_what_it_needs,
                a_session_that_is_dropped_leaves_no_transaction_on_the_server,
                a_step_down_repeats_the_whole_transaction,
                write_conflicts_between_tasks_lose_no_increment,
                a_deadline_ends_a_transaction_that_cannot_be_committed,
                a_commit_has_the_limit_of_its_session_or_one_of_its_own_csot_26,
                a_limit_of_zero_replaces_the_w_timeout_of_a_commit_csot_3,
                a_commit_in_a_closed_client_is_not_repeated_x_150,
                an_operation_of_a_transaction_in_a_closed_client_is_not_transient_x_150,
                a_transaction_whose_time_is_up_is_aborted_x_151,
                a_transaction_whose_time_is_up_says_so_txn_4,
                an_operation_in_with_transaction_takes_no_limit_of_its_own_csot_27,
                an_error_of_the_callbacks_own_aborts_and_comes_back,
                a_commit_that_was_cut_off_is_done_once,
                a_transaction_behind_a_load_balancer_keeps_its_connection_lb_15,
                a_read_elsewhere_and_a_write_concern_are_refused_txn_3,
                a_read_concern_of_a_single_command_is_refused_txn_2,
                a_write_without_a_reply_is_refused_in_a_session_ses_10_x_176,
                a_write_concern_without_a_reply_and_with_a_journal_is_refused,
                a_snapshot_session_reads_at_one_time_ses_17,
            }
            session_cursors {
                a_cursor_from_before_a_transaction_is_closed_outside_of_it,
                a_cursor_of_an_earlier_transaction_is_closed_outside_of_the_next_one,
                a_cursor_of_the_open_transaction_is_closed_in_it,
                a_cursor_on_a_secondary_is_closed_there_during_a_transaction_pin_1,
                a_cursor_that_is_closed_leaves_a_transaction_its_connection_lb_15,
                nothing_is_sent_for_a_cursor_whose_transaction_has_ended_lb_15,
                a_commit_may_be_repeated_after_a_cursor_is_closed,
                a_cursor_of_a_snapshot_session_that_is_closed_is_ended_on_the_server,
            }
            sockets {
                a_socket_is_read_at_once_if_there_is_something_to_read,
                whoever_waits_for_a_socket_is_woken_when_it_can_be_read,
                whoever_waits_for_a_socket_is_woken_when_its_peer_hangs_up,
                whoever_waits_after_a_look_is_woken_by_what_comes_next,
                the_end_of_writing_reaches_the_peer_whose_last_words_are_read,
                a_connection_is_good_for_many_commands,
                a_connection_is_good_for_many_commands_under_tls,
                a_task_that_waits_for_a_reply_sleeps_until_it_comes,
            }
            oidc {
                prose_1_1_the_callback_is_called_during_authentication,
                prose_1_2_the_callback_is_called_once_for_multiple_connections,
                prose_2_1_the_callback_gets_valid_inputs,
                prose_2_2_and_2_3_a_callback_without_a_token_fails_the_operation,
                prose_2_4_a_callback_and_an_environment_are_an_invalid_configuration,
                prose_3_1_a_refused_token_of_the_cache_is_replaced_and_the_login_repeated,
                prose_3_2_a_refused_token_that_is_not_of_the_cache_is_an_error,
                prose_3_3_an_unexpected_error_code_does_not_clear_the_cache,
                prose_4_1_reauthentication_succeeds,
                another_login_has_what_the_command_has_left_of_its_time,
                a_command_that_is_sent_again_says_how_much_of_its_time_is_left_csot_9,
                a_cursor_that_is_given_up_during_another_login_costs_its_connection,
                the_token_of_a_user_who_was_removed_is_forgotten,
                the_token_of_a_user_who_was_replaced_is_forgotten,
                an_open_connection_logs_in_again_as_the_user_it_has_x_91,
                prose_4_2_and_4_3_commands_fail_if_reauthentication_fails,
                prose_4_4_reauthentication_sends_no_hello_and_so_does_not_speculate,
                prose_4_5_reauthentication_succeeds_in_a_session,
                a_cached_token_goes_along_with_the_hello_oidc_6,
                a_callback_that_takes_too_long_is_said_so_oidc_8,
                calls_for_tokens_are_100_ms_apart_oidc_5,
                a_call_for_a_token_that_was_cut_off_counts_oidc_5,
                a_callback_that_panics_fails_its_connection_alone,
            }
            own_mechanism {
                it_logs_in_again_oidc_1,
                one_that_cannot_begin_again_costs_its_connection_x_191,
            }
            socks {
                connections_and_checks_go_through_the_proxy_which_resolves_the_name_socks_2,
                tls_goes_through_the_proxy_to_the_server_socks_2,
                a_server_that_is_restarted_behind_a_proxy_is_found_again,
                a_login_that_the_proxy_refuses_is_said_so,
                a_server_that_the_proxy_cannot_reach_is_said_so,
                a_proxy_that_hangs_up_or_lies_at_any_byte_is_named_socks_4,
                a_proxy_that_is_silent_or_gone_is_named_in_time,
                a_check_through_a_silent_proxy_names_it,
            }
            unasked {
                a_doubled_reply_closes_its_connection_at_check_in,
                a_doubled_reply_under_tls_closes_its_connection_at_check_in,
                a_reply_sent_ahead_answers_no_command,
                a_reply_sent_ahead_under_tls_answers_no_command,
                a_reply_sent_ahead_answers_no_command_on_a_pinned_connection,
                half_a_reply_sent_ahead_closes_its_connection_at_check_in,
                what_comes_while_a_connection_is_idle_closes_it,
            }
            faults {
                a_restarted_server_costs_no_user_an_error,
                a_restart_that_the_monitor_has_seen_costs_no_user_an_error,
                a_killed_server_is_found_again,
                a_reset_connection_is_an_error_that_clears_the_pool,
                half_a_message_then_the_end_is_an_error,
                half_a_message_then_silence_is_a_timeout,
                a_server_that_is_no_primary_any_more_is_checked_at_once,
                a_server_is_checked_again_and_again_on_one_socket,
                a_monitor_whose_socket_ends_notices_at_once,
                a_hanging_server_interrupts_its_commands,
            }
            phases {
                a_black_hole_while_connecting_is_given_up,
                a_black_hole_in_the_tls_handshake_is_given_up,
                a_black_hole_in_hello_is_given_up,
                a_hello_that_comes_too_slowly_is_given_up_x_17,
                a_black_hole_at_sasl_start_is_given_up,
                a_black_hole_at_sasl_continue_is_given_up,
                a_black_hole_at_a_command_is_given_up,
                a_reset_in_the_tls_handshake_is_an_error,
                a_reset_in_hello_is_an_error,
                a_reset_at_sasl_start_is_an_error,
                a_reset_at_sasl_continue_is_an_error,
            }
            hostile {
                a_server_that_lies_costs_errors_and_nothing_else,
            }
            storms {
                a_server_that_takes_no_connections_is_left_alone_and_found_again_soon,
            }
            older_edition {
                a_pool_of_the_older_edition_is_ready_and_populated_at_once,
                a_waiter_of_the_older_edition_outlives_the_loss_of_its_server,
            }
            storms_of_callers {
                a_full_wait_queue_refuses_with_the_labels_of_an_overload,
                a_wait_queue_that_becomes_shorter_refuses_only_newcomers_x_70,
                connections_come_at_once_when_their_rate_is_lifted_x_70,
                new_connections_keep_to_their_rate,
                connections_are_used_in_turn,
            }
            handshakes {
                a_handshake_comes_byte_by_byte,
                a_handshake_under_tls_comes_byte_by_byte,
                a_handshake_cut_at_every_byte_is_an_error_and_recovers,
                a_handshake_under_tls_cut_at_every_byte_is_an_error_and_recovers,
                a_handshake_with_a_monitor_beside_it_that_is_cut_is_an_error_and_recovers,
                a_library_around_the_client_is_named_by_connections_yet_to_come_hs_14,
                a_library_around_the_client_is_named_by_checks_yet_to_come_hs_14,
                the_hello_of_a_connection_says_what_a_check_would,
            }
        }
    };
    (@modules $kind:tt $harness:ty,
        $($module:ident { $($(#[$condition:meta])? $case:ident $(: $need:literal)?,)* })*
    ) => {
        $(mod $module {
            $($crate::conformance! { @test $kind $harness, $(#[$condition])? $module $case $(: $need)? })*
        })*
    };
    (@test virtual $harness:ty, $(#[$condition:meta])? $module:ident $case:ident : $need:literal) => {
        $(#[$condition])?
        #[test]
        #[ignore = $need]
        fn $case() {
            <$harness as $crate::Harness>::test($crate::$module::$case::<$harness>);
        }
    };
    (@test (behind $reason:literal) $harness:ty, $(#[$condition:meta])? $module:ident $case:ident $(: $need:literal)?) => {
        $(#[$condition])?
        #[test]
        #[ignore = $reason]
        fn $case() {
            $crate::reverse::behind::test(stringify!($case), || {
                <$harness as $crate::Harness>::test($crate::$module::$case::<$harness>);
            });
        }
    };
    (@test (ignored $reason:literal) $harness:ty, $(#[$condition:meta])? $module:ident $case:ident $(: $need:literal)?) => {
        $(#[$condition])?
        #[test]
        #[ignore = $reason]
        fn $case() {
            <$harness as $crate::Harness>::test($crate::$module::$case::<$harness>);
        }
    };
    (@test $kind:tt $harness:ty, $(#[$condition:meta])? $module:ident $case:ident $(: $need:literal)?) => {
        $(#[$condition])?
        #[test]
        fn $case() {
            <$harness as $crate::Harness>::test($crate::$module::$case::<$harness>);
        }
    };
}

/// The cases of listeners and agents, for a harness whose runtime can listen ([`Listen`](cmap_runtime::Listen)).
#[cfg(feature = "reverse")]
#[macro_export]
macro_rules! conformance_of_listeners {
    ($kind:tt $harness:ty) => {
        $crate::conformance! { @modules $kind $harness,
            reverse {
                a_client_takes_its_connections_from_an_agent,
                the_servers_own_tls_and_login_hold_from_end_to_end,
                a_certificate_that_names_the_member_lets_its_agent_in,
                a_client_waits_for_an_agent_that_comes_late,
                without_an_agent_a_check_out_fails_in_time_and_names_the_member,
                more_sockets_are_demanded_than_are_parked,
                a_member_that_its_agent_cannot_reach_is_said_so,
                an_agent_that_is_gone_costs_its_connections_and_its_successor_serves,
                a_later_run_of_an_agent_takes_the_place_of_an_earlier_one,
                a_closed_listener_ends_waits_and_parked_sockets,
                a_client_that_gives_up_leaves_no_socket_behind,
                a_listener_that_cannot_be_made_says_why,
                a_unix_socket_has_no_agent,
                a_wrong_token_is_refused_and_the_log_says_why,
                a_token_is_good_for_its_own_members_only,
                a_proof_of_another_connection_proves_nothing,
                an_agent_that_parks_and_never_starts_costs_an_attempt_its_time,
                a_certificate_for_another_host_is_refused,
                who_speaks_another_protocol_is_told_by_tls,
                who_fails_again_and_again_is_turned_away_before_the_handshake,
                who_hangs_up_before_a_hello_keeps_out_no_agent_of_that_address,
                ten_thousand_half_open_agents_cost_a_bounded_number_of_sockets,
                who_says_nothing_keeps_out_no_agent_of_that_address,
            }
        }
    };
}

/// The cases of recorders: part of the suite where the feature `trace` is on.
#[cfg(feature = "trace")]
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_of_recorders {
    ($kind:tt $harness:ty) => {
        $crate::conformance! { @modules $kind $harness,
            recording {
                the_file_of_a_client_under_load_replays_bit_for_bit,
                a_wait_names_the_leak_by_label_and_place,
                a_pool_that_is_too_small_has_many_short_uses,
                a_server_that_establishes_slowly_binds_by_establishment_and_max_connecting,
                a_broken_login_is_the_end_of_its_waits,
                a_server_that_is_gone_binds_by_selection,
                a_starved_task_is_told_from_a_busy_pool,
                a_caller_that_gives_up_is_told_from_a_failure,
                a_long_wait_writes_one_file,
                a_caller_that_fails_before_the_long_wait_writes_a_file,
                a_caller_that_fails_in_an_outage_writes_a_file,
                a_caller_that_gives_up_in_an_outage_writes_a_file,
                a_long_wait_for_a_server_writes_a_file,
                a_sparse_recorder_explains_a_wait_and_keeps_no_calls,
                a_client_without_a_recorder_has_no_trace,
            }
        }
    };
}

/// There are no recorders.
#[cfg(not(feature = "trace"))]
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_of_recorders {
    ($kind:tt $harness:ty) => {};
}
