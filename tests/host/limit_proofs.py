"""Which test exceeds which limit of docs/limits.md: the place in the code -> `file::test`, below `tests/`."""

_SERVER = "host/test_server.py::test_"
_LIMITS = "host/test_limits.py::test_"
_TURNS = "host/test_turns.py::test_"
_WEBSOCKET = "host/test_websocket.py::test_"
_SERIAL = "host/test_serial.py::test_"
_DEVICE = "firmware/test_"
_OMNIA = "host/test_omnia.py::test_"
_OMNIA_MESSAGES = "host/test_omnia_messages.py::test_"
_OMNIA_DIALOGUE = "host/test_omnia_dialogue.py::test_"
_OPENAI = "host/test_openai_realtime.py::test_"
_LIVE = "host/test_openai_live.py::test_"
_GUEST = "host/test_guest.py::test_"
_FISH_ROOM = "host/test_fish_room.py::test_"
_FISH_DIALOGUE = "host/test_fish_dialogue.py::test_"
_AITP = "host/test_facade_aitp.py::test_"
_AITP_HOSTILE = "host/test_facade_aitp_hostile.py::test_"
_BAD_OMNIA = "host/test_omnia_hostile.py::test_"
_OMNIA_FACADE = "host/test_facade_omnia.py::test_"
_OMNIA_CALLS = "host/test_facade_omnia_calls.py::test_"
_OMNIA_HOSTILE = "host/test_facade_omnia_hostile.py::test_"
_OMNIA_MEDIA = "host/test_facade_omnia_media.py::test_"
_FISH_FACADE = "host/test_facade_fish.py::test_"
_FISH_TURNS = "host/test_facade_fish_turns.py::test_"
_FISH_ROOMS = "host/test_facade_fish_rooms.py::test_"
_AITP_AGENT = "host/test_aitp.py::test_"
_OUTBOX = "host/test_outbox.py::test_"
_AITP_MESSAGES = "host/test_aitp_messages.py::test_"
_AITP_DIALOGUE = "host/test_aitp_dialogue.py::test_"

PROOFS = {
    # The host: messages and sessions
    "session.Limits.message_bytes": _LIMITS + "what_is_too_much_is_told_and_the_session_goes_on",
    "session.Limits.audio_bytes": _LIMITS + "what_is_too_much_is_told_and_the_session_goes_on",
    "server.READ_ON": _SERVER + "frame_beyond_what_is_read_closes_with_1009_and_twice_ends_the_session",
    "links.websocket.MAX_FRAGMENTS": _SERVER + "message_in_too_many_fragments_closes_with_1009",
    "protocol.wire.MAX_DEPTH": _LIMITS + "what_is_too_much_is_told_and_the_session_goes_on",
    "schema/common.json id/maxLength": _LIMITS + "what_is_too_much_is_told_and_the_session_goes_on",
    "schema/common.json capability/maxLength": _LIMITS
    + "hello_that_lists_too_much_is_refused_and_another_may_follow",
    "protocol.wire.MAX_LISTED": _LIMITS + "hello_that_lists_too_much_is_refused_and_another_may_follow",
    "tools.MAX_TOOLS": _LIMITS + "tools_beyond_a_limit_are_told_and_never_called",
    "tools.MAX_SCHEMA": _LIMITS + "tools_beyond_a_limit_are_told_and_never_called",
    "tools.MAX_SCHEMAS": _LIMITS + "tools_beyond_a_limit_are_told_and_never_called",
    "session.Limits.hello_s": _SERVER + "link_without_hello_is_closed",
    "session.Limits.early_messages": _LIMITS + "too_much_before_ready_is_an_overflow",
    "session.Limits.early_bytes": _LIMITS + "too_much_before_ready_is_an_overflow",
    "config.ServerConfig.start_timeout": _SERVER + "agent_that_takes_too_long_to_start_is_start_failed",
    "config.ServerConfig.max_sessions": _SERVER + "sessions_beyond_the_limit_are_start_failed",
    "config.ServerConfig.max_links": _SERVER + "links_beyond_the_limit_are_refused",
    "session.Limits.heartbeat_s": _SERVER + "silent_link_is_closed_and_its_session_parked",
    "session.Limits.resume_window_s": _SERVER + "session_ends_when_the_resume_window_does",
    "session.Limits.ack_s": _LIMITS + "acknowledgement_comes_after_so_many_messages_or_so_long",
    "session.Limits.ack_every": _LIMITS + "acknowledgement_comes_after_so_many_messages_or_so_long",
    "session.Limits.kept_messages": _LIMITS + "resume_that_needs_what_is_gone_fails_and_closes_the_session",
    "session.Limits.kept_bytes": _LIMITS + "resume_that_needs_what_is_gone_fails_and_closes_the_session",
    "session.Limits.waiting_bytes": _SERVER + "peer_that_never_reads_is_closed_and_its_session_waits",
    "protocol.wire.U32_MAX": "host/test_session.py::test_send_closes_the_session_when_the_numbers_are_used_up",
    "config.ServerConfig.stop_timeout": _SERVER + "stop_does_not_wait_for_an_agent_that_hangs",
    "protocol.wire.SHOWN": "host/test_wire.py::test_error_text_is_bounded",
    "seat.FAULTS_LOGGED": _SERVER + "peer_cannot_fill_the_log_with_its_faults",
    # The host: links and tokens
    "server.HANDSHAKE_S": _LIMITS + "stranger_who_does_not_shake_hands_is_cut_off",
    "links.websocket.CLOSE_TIMEOUT_S": _WEBSOCKET + "peer_that_closes_and_stays_is_cut_off",
    "links.websocket.WRITE_LIMIT": _SERVER + "peer_that_never_reads_is_closed_and_its_session_waits",
    "links.pings.PING_AFTER_S": _WEBSOCKET + "audio_is_held_while_an_older_ping_is_unanswered",
    "links.websocket.MAX_PINGS_UNREAD": _WEBSOCKET + "peer_that_asks_without_reading_is_cut_off",
    "protocol.framing.MAX_PAYLOAD": "host/test_framing.py::test_decoder_keeps_no_more_than_a_frame_has",
    "protocol.framing.WINDOW": "firmware/test_framing.py::test_device_goes_no_further_than_the_window",
    "links.serial.ASK_AGAIN_S": _SERIAL + "ping_is_sent_again_until_the_board_is_given_up",
    "links.serial.PROBE_S": _SERIAL + "message_that_is_lost_last_in_line_shows",
    "links.serial.BROKEN_S": _SERIAL + "ping_is_sent_again_until_the_board_is_given_up",
    "links.serial.CLOSE_TIMEOUT_S": _SERIAL + "board_that_does_not_answer_a_close_is_forgotten",
    "links.serial.LONGEST_LOOK_S": _SERIAL + "port_is_waited_for_and_comes_back",
    "links.serial.LINES_LOGGED": _SERIAL + "console_of_a_board_is_logged_as_far_as_it_goes",
    "auth._MAX_TOKEN": _LIMITS + "token_that_is_too_long_is_refused",
    "auth._MAX_FILE": _LIMITS + "tokens_file_that_is_too_large_is_refused",
    "server.TOKENS_EVERY_S": _SERVER + "revoked_token_ends_its_session",
    # The host: turns, calls, audio
    "config.TurnLimits.buffer_ms": _TURNS + "audio_is_announced_cut_and_paced",
    "config.TurnLimits.queued_calls": _LIMITS + "calls_beyond_what_a_device_takes_wait_for_a_result",
    "tools.DEFAULT_TIMEOUT_MS": _LIMITS + "call_without_a_declared_time_has_the_default",
    "tools.MAX_TIMEOUT_MS": _LIMITS + "tool_that_is_declined_for_another_reason_is_told_to_nobody",
    "config.TurnLimits.call_margin": "host/test_calls.py::test_call_without_a_result_times_out_and_closes_its_epoch",
    "tools.MAX_ARGUMENTS": _LIMITS + "arguments_that_are_too_long_are_refused_and_not_sent",
    "tools._SHOWN": _LIMITS + "arguments_that_are_too_long_are_refused_and_not_sent",
    "outlet.MAX_TEXT": _LIMITS + "long_text_goes_in_several_messages_and_a_long_transcript_is_cut",
    "config.TurnLimits.per_turn": _LIMITS + "agent_that_goes_too_far_is_told_of",
    "config.TurnLimits.agent_audio_s": _LIMITS + "agent_that_goes_too_far_is_told_of",
    "config.TurnLimits.drain_s": "host/test_runner.py::test_agent_that_drains_is_never_far_ahead_and_is_let_go_at_the_end",
    "config.TurnLimits.agent_silence": _LIMITS + "agent_that_goes_too_far_is_told_of",
    "config.TurnLimits.events": _LIMITS + "agent_that_goes_too_far_is_told_of",
    "config.TurnLimits.playback_wait": _TURNS + "interruption_takes_the_clock_when_playback_does_not_come",
    "consent.ANSWER_S": "host/test_consent.py::test_yes_that_comes_after_a_while_is_none",
    "consent.TRANSCRIPT_S": "host/test_consent.py::test_call_does_not_wait_for_a_transcript_for_ever",
    "config.TurnLimits.held": _TURNS + "client_that_floods_a_waiting_interruption_ends_the_wait",
    "protocol.opus.MAX_S": "host/test_opus.py::test_broken_packet_is_silence_of_its_length_and_counted",
    "harness.retold.MOST_S": "host/test_capture.py::test_session_that_is_too_long_is_not_drawn",
    "harness.capture.MOST_BYTES": "host/test_capture.py::test_recording_ends_at_its_greatest_size_with_whole_lines",
    # The host: scripts and the offline agent
    "agents.script_json.MAX_FILE": _LIMITS + "script_that_is_too_large_is_refused",
    "agents.script.MAX_SOUND_MS": _LIMITS + "recording_that_is_too_long_is_refused",
    "agents.phrases.MAX_PHRASES": "host/test_intents.py::test_intents_warn_of_a_bad_phrase_and_go_on",
    "agents.phrases.MAX_TEMPLATES": _LIMITS + "sentences_beyond_the_limit_are_warned_of",
    "agents.templates.MAX_LENGTH": "host/test_intents.py::test_template_says_what_is_wrong",
    "agents.templates._MAX_DEPTH": "host/test_intents.py::test_template_says_what_is_wrong",
    "agents.local._MAX_WARNINGS": "host/test_local.py::test_start_warns_of_twenty_phrases_at_most",
    "speech.listener.LONGEST_MS": "host/test_vad.py::test_listener_caps_an_utterance_and_then_waits_for_silence",
    "agents.local._MAX_TEXT": "host/test_local.py::test_text_that_is_not_understood_is_answered_by_what_can_be",
    "agents.gemini_link._MAX_BYTES": "host/test_gemini_link.py::test_message_that_is_too_large_ends_the_connection",
    "agents.outbox.AUDIO_BYTES": _OUTBOX + "audio_that_waits_is_bounded_and_that_is_told_once_a_connection",
    "agents.gemini_live._MESSAGES": _OUTBOX + "messages_that_wait_are_bounded",
    "agents.mouth.MOST_BYTES": "host/test_gemini_live.py::test_reading_stops_when_a_reply_is_far_ahead",
    "agents.mouth.EVENTS": _AITP_AGENT + "reading_stops_when_a_reply_is_far_ahead",
    "agents.aitp_link._MAX_BYTES": _AITP_AGENT + "message_that_is_too_large_ends_the_connection",
    "agents.aitp_link.HANDSHAKE_S": _AITP_AGENT + "server_that_never_confirms_is_left_with_4000",
    "agents.aitp_link._PER_SECOND": _AITP_AGENT + "messages_stay_below_100_in_a_second",
    "agents.aitp_messages.MAX_TOOLS": _AITP_MESSAGES
    + "tools_beyond_what_the_server_takes_are_left_out_and_named",
    "agents.aitp_messages.TEXT_CHARS": _AITP_DIALOGUE
    + "text_of_8000_characters_is_sent_and_a_longer_one_is_not",
    "agents.aitp_messages.CONTEXT_BYTES": _AITP_MESSAGES + "context_of_64_kb_is_told_and_a_larger_one_is_not",
    "agents.aitp_turn._CHARACTERS": _AITP_DIALOGUE + "history_is_bounded",
    "agents.aitp_turns._ANSWER_S": _AITP_DIALOGUE + "answer_that_does_not_come_within_30_s_is_given_up",
    "agents.aitp_turns._INPUTS": _AITP_DIALOGUE + "inputs_that_wait_are_bounded",
    "agents.aitp._STEADY_S": "host/test_aitp_hostile.py::test_connection_that_lasted_10_s_begins_the_attempts_anew",
    "agents.aitp._LINES": "host/test_aitp_hostile.py::test_errors_without_end_are_told_as_far_as_anybody_would_read_them",
    "agents.aitp._MESSAGES": _OUTBOX + "messages_that_wait_are_bounded",
    "agents.omnia_link._FRAME_BYTES": _OMNIA + "message_that_is_too_large_ends_the_connection",
    "agents.omnia_frames.TRANSFER_BYTES": _OMNIA_MESSAGES + "transfer_has_a_limit",
    "agents.omnia_frames._TRANSFERS": _OMNIA_MESSAGES + "transfers_at_once_are_few",
    "agents.omnia_mouth._MEDIA": _OMNIA_DIALOGUE + "media_under_way_are_bounded",
    "agents.omnia_sound._REORDERED": _OMNIA_MESSAGES + "chunk_that_never_comes_is_not_waited_for_for_ever",
    "agents.omnia._MESSAGES": _OUTBOX + "messages_that_wait_are_bounded",
    "agents.omnia_sender._TOLD": _OMNIA_DIALOGUE + "what_waits_for_the_next_message_is_bounded",
    "agents.omnia_turn._TEXT_CHARS": _OMNIA_DIALOGUE
    + "answer_that_is_too_long_to_be_compared_is_not_said_twice",
    "agents.omnia_dialogue._HEARD_CHARS": _OMNIA_DIALOGUE + "words_without_an_end_are_bounded",
    "agents.omnia_calls._ANSWERED": "host/test_omnia_calls.py::test_calls_that_are_remembered_are_few",
    "agents.omnia._STEADY_S": _BAD_OMNIA + "connection_that_lasted_begins_the_waits_anew",
    "agents.dial.GOODBYE_S": _BAD_OMNIA + "facade_that_does_not_read_is_left_all_the_same",
    "agents.omnia_sender.PATIENCE_S": _OMNIA_DIALOGUE + "answer_that_goes_on_for_ever_costs_the_connection",
    "agents.omnia.GRACE_S": _OMNIA + "call_that_is_not_parked_any_more_begins_anew",
    "agents.omnia_dialogue.LISTEN_S": _OMNIA_DIALOGUE + "spoken_turn_in_which_nothing_comes_ends",
    "agents.omnia_dialogue.DEAF_S": _OMNIA_DIALOGUE + "audio_session_that_fails_is_told_and_given_up",
    "agents.omnia._UPLOAD_S": _OMNIA + "upload_that_is_not_answered_is_told",
    "agents.omnia_files.INLINE_BYTES": _OMNIA + "file_that_cannot_be_handed_over_is_told_to_both",
    "agents.omnia_credential.RENEWAL_S": _OMNIA + "expired_credential_without_another_ends_the_session",
    "agents.omnia_messages.METADATA_KEYS": _OMNIA_MESSAGES
    + "limits_of_metadata_are_kept_before_anything_is_sent",
    "agents.omnia_messages.METADATA_VALUE_BYTES": _OMNIA_MESSAGES
    + "limits_of_metadata_are_kept_before_anything_is_sent",
    "agents.omnia_messages.METADATA_BYTES": _OMNIA_MESSAGES
    + "limits_of_metadata_are_kept_before_anything_is_sent",
    "agents.fish_session._ANSWER_BYTES": "host/test_fish.py::test_session_that_cannot_be_is_told_in_words",
    "agents.fish_room.AGENT_S": _FISH_ROOM + "agent_that_does_not_come_within_15_s_is_given_up",
    "agents.fish_room.AUDIENCE_S": _FISH_ROOM + "audio_waits_until_somebody_listens_and_is_bounded",
    "agents.fish_room._MIC_BYTES": _FISH_ROOM + "audio_waits_until_somebody_listens_and_is_bounded",
    "agents.fish_room.LEAVE_S": _FISH_ROOM
    + "room_that_does_not_answer_is_given_up_in_time_and_holds_up_nobody",
    "agents.fish_room._MESSAGES": _FISH_ROOM + "messages_that_wait_are_bounded",
    "agents.fish.ENDED_S": _FISH_ROOM
    + "agent_that_says_that_it_ends_the_session_and_does_not_is_left_after_10_s",
    "agents.fish_dialogue._CALLED": _FISH_DIALOGUE + "ids_of_64_calls_and_ends_are_remembered",
    "agents.fish_own._REMEMBERED": _FISH_DIALOGUE + "ids_of_64_calls_and_ends_are_remembered",
    "agents.fish_room.BYE_S": _FISH_ROOM + "session_is_hung_up_at_the_end",
    "agents.fish_messages.RESULT_BYTES": _FISH_DIALOGUE + "result_has_60000_bytes",
    "agents.fish_dialogue._HELD": _FISH_DIALOGUE + "what_waits_for_the_next_session_is_bounded",
    "agents.fish_dialogue._TOLD": _FISH_DIALOGUE + "what_waits_for_the_next_session_is_bounded",
    "agents.fish_turn._SAID": _FISH_DIALOGUE + "what_waits_for_the_next_session_is_bounded",
    "agents.fish_dialogue.ANSWER_S": _FISH_DIALOGUE + "turn_without_an_answer_is_given_up_after_30_s",
    "agents.fish_dialogue.MUTED_S": _FISH_DIALOGUE
    + "agent_that_does_not_rest_after_an_interruption_is_not_waited_for",
    "agents.omnia_options.DECLARE_BYTES": _OMNIA_MESSAGES
    + "wrong_option_is_refused_before_anything_is_opened",
    "agents.chat._LONGEST_CHARS": "host/test_chat.py::test_text_without_an_end_is_cut_off",
    "agents.chat._ROUNDS": "host/test_chat.py::test_model_that_calls_for_ever_is_stopped",
    "agents.chat_model._CALLS": "host/test_chat_model.py::test_too_many_calls_are_refused",
    "agents.chat_model._LINE_BYTES": "host/test_chat_model.py::test_line_without_an_end_is_left_out",
    "agents.chat_ears._QUEUED_FRAMES": "host/test_speech_parts.py::test_audio_that_no_detector_takes_is_bounded",
    "speech.wyoming._WAITING": "host/test_speech_parts.py::test_wyoming_server_that_takes_nothing_is_not_waited_for_without_bound",
    "agents.openai_link._MESSAGE_BYTES": _OPENAI + "message_that_is_too_large_ends_the_connection",
    "agents.openai_realtime._PENT_UP_S": _OPENAI + "answer_without_an_end_is_cut_off",
    "agents.openai_pump._EVENTS": _OPENAI + "words_without_end_are_cut_off",
    "agents.openai_realtime._RING_FRAMES": _OPENAI + "audio_without_a_connection_is_bounded",
    "agents.openai_live._RING_FRAMES": _LIVE + "sound_without_a_connection_is_bounded",
    "agents.openai_link._QUEUED_FRAMES": _OPENAI + "audio_that_the_connection_does_not_take_is_bounded",
    "agents.openai_history._BYTES": "host/test_openai_session.py::test_history_is_bounded",
    "agents.openai_duplex._OPENING_BYTES": _LIVE
    + "opening_and_what_is_appended_stay_within_what_the_protocol_takes",
    "agents.openai_session._BEGIN_S": "host/test_openai_session.py"
    "::test_answer_that_does_not_begin_is_not_waited_for_without_end",
    "agents.openai_duplex._WORK_S": _LIVE + "text_that_the_server_does_not_answer_is_told",
    "agents.local._QUEUED_FRAMES": "host/test_local.py::test_audio_that_is_not_worked_off_is_bounded",
    # The host: facades
    "facades.guest.BUFFER_MS": _GUEST + "audio_comes_no_faster_than_it_is_heard",
    "facades.guest.INPUT_BYTES": _GUEST + "sound_is_converted_both_ways",
    "facades.web.LEAVE_S": _AITP + "whoever_does_not_read_is_cut_off",
    "facades.web.REQUEST_S": _AITP_HOSTILE + "a_connection_without_a_request_is_closed",
    "facades.web.WAITING_BYTES": _AITP_HOSTILE
    + "what_waits_for_a_client_that_does_not_read_is_bounded_in_bytes",
    "facades.aitp_session.TOOLS_BYTES": _AITP_HOSTILE + "tools_that_are_too_large_leave_the_list_before",
    "facades.aitp_session.ADDRESS_CHARS": _AITP_HOSTILE + "the_largest_page_that_is_taken_opens_a_session",
    "facades.aitp_session.REOPEN_S": _AITP_HOSTILE + "tools_that_change_all_the_time_open_no_session_each",
    "facades.aitp_session.EARLY_BYTES": _AITP_HOSTILE + "sound_that_comes_before_its_session_is_bounded",
    "facades.aitp.INIT_S": _AITP + "a_connection_without_init_is_closed",
    "facades.aitp.MESSAGE_BYTES": _AITP + "a_message_has_4_mib",
    "facades.aitp.MESSAGES_PER_S": _AITP + "there_are_a_hundred_messages_in_a_second",
    "facades.aitp.QUEUED": _AITP + "whoever_does_not_read_is_cut_off",
    "facades.aitp.PING_S": _AITP + "whoever_answers_no_ping_is_cut_off",
    "facades.aitp_session.TEXT_CHARS": _AITP + "a_text_has_8000_characters",
    "facades.aitp_session.CONTEXT_BYTES": _AITP + "the_page_is_the_agents_context",
    "facades.aitp_session.INPUTS_PER_MINUTE": _AITP + "there_are_twenty_inputs_in_a_minute",
    "facades.aitp_session.RESPONSE_S": _AITP + "an_answer_that_does_not_come_is_told_after_30_s",
    "facades.aitp_session.CALL_S": _AITP + "a_call_that_nobody_answers_ends_after_10_s",
    "facades.aitp_session.APPROVAL_S": _AITP + "what_the_page_denies_or_leaves_open_does_not_reach_the_board",
    "facades.aitp_session.SAID": _AITP + "when_the_tools_change_what_was_said_goes_on_in_the_context",
    "facades.aitp_session.SAID_CHARS": _AITP + "when_the_tools_change_what_was_said_goes_on_in_the_context",
    "facades.aitp_session.EARLY": _AITP + "what_comes_while_the_session_opens_waits",
    "facades.omnia_socket.MESSAGE_BYTES": _OMNIA_FACADE + "a_message_has_16_mib",
    "facades.omnia.TEXT_BYTES": _OMNIA_FACADE + "a_text_has_what_the_host_takes",
    "facades.omnia_messages.PARTS": _OMNIA_HOSTILE + "not_all_that_is_wrong_with_a_message_is_looked_for",
    "facades.omnia_frames.METADATA_BYTES": _OMNIA_HOSTILE
    + "metadata_of_a_frame_that_are_too_long_are_not_looked_at",
    "facades.omnia.DRAIN_S": "host/test_facade_omnia_stop.py::test_a_host_waits_30_s_for_turns",
    "facades.omnia_media.BODY_S": _OMNIA_MEDIA + "no_body_is_waited_for_for_ever",
    "facades.omnia.MESSAGES_PER_S": _OMNIA_FACADE + "a_bucket_has_so_many_at_once_and_so_many_a_second",
    "facades.omnia.MESSAGES_AT_ONCE": _OMNIA_FACADE + "what_is_beyond_a_rate_is_shed_and_told",
    "facades.omnia.MEDIA_BYTES_PER_S": _OMNIA_FACADE + "a_bucket_has_so_many_at_once_and_so_many_a_second",
    "facades.omnia.MEDIA_BYTES_AT_ONCE": _OMNIA_FACADE + "what_is_beyond_a_rate_is_shed_and_told",
    "facades.omnia.PING_S": _OMNIA_FACADE
    + "a_client_of_which_nothing_comes_for_60_s_is_gone_and_any_frame_counts",
    "facades.omnia.SILENCE_S": _OMNIA_FACADE
    + "a_client_of_which_nothing_comes_for_60_s_is_gone_and_any_frame_counts",
    "facades.omnia_socket.WRITE_S": _OMNIA_FACADE + "a_client_that_does_not_read_is_cut_off",
    "facades.omnia.QUEUED": _OMNIA_FACADE + "a_client_that_does_not_read_is_cut_off",
    "facades.omnia.CONGESTED": _OMNIA_CALLS + "sound_waits_for_a_client_that_reads_slowly",
    "facades.omnia_messages.METADATA_KEYS": _OMNIA_FACADE
    + "a_limit_of_metadata_is_named_and_the_model_hears_nothing",
    "facades.omnia_messages.METADATA_VALUE_BYTES": _OMNIA_FACADE
    + "a_limit_of_metadata_is_named_and_the_model_hears_nothing",
    "facades.omnia_messages.METADATA_BYTES": _OMNIA_FACADE
    + "a_limit_of_metadata_is_named_and_the_model_hears_nothing",
    "facades.omnia_messages.DECLARE_BYTES": _OMNIA_FACADE
    + "a_declaration_is_refused_and_the_next_message_opens_the_session",
    "facades.omnia_messages.SESSION_CHARS": _OMNIA_FACADE + "a_text_has_what_the_host_takes",
    "facades.omnia.SESSIONS": _OMNIA_FACADE + "a_connection_has_four_sessions_with_an_agent",
    "facades.omnia_archive.MOST": _OMNIA_FACADE + "a_thousand_sessions_are_remembered",
    "facades.omnia_session.FIRST_S": _OMNIA_FACADE
    + "an_answer_that_does_not_begin_or_stops_partway_is_an_error",
    "facades.omnia_session.IDLE_S": _OMNIA_FACADE
    + "an_answer_that_does_not_begin_or_stops_partway_is_an_error",
    "facades.omnia_session.PARK_S": _OMNIA_CALLS + "a_call_that_nobody_takes_up_ends",
    "facades.omnia_session.KEPT": _OMNIA_CALLS
    + "what_is_told_while_a_call_is_parked_comes_with_the_connection",
    "facades.omnia_session.AGAIN_S": _OMNIA_CALLS + "an_agent_that_fails_is_not_made_again_with_each_frame",
    "facades.omnia_session.LAST_S": _OMNIA_CALLS + "the_last_frame_ends_the_call_behind_its_answer",
    "facades.omnia_turn.SAID": _OMNIA_FACADE + "of_what_was_said_so_much_goes_on",
    "facades.omnia_turn.SAID_CHARS": _OMNIA_FACADE + "of_what_was_said_so_much_goes_on",
    "facades.omnia_session.EARLY": _OMNIA_CALLS + "audio_waits_while_a_session_opens",
    "facades.omnia_tools.TOOLS_BYTES": _OMNIA_CALLS + "a_file_of_tools_that_is_wrong_is_a_usage_error",
    "facades.omnia_tools.RESULT_BYTES": _OMNIA_CALLS + "what_a_result_says_is_what_the_agent_hears",
    "facades.omnia_media.UPLOAD_S": _OMNIA_MEDIA
    + "an_address_is_valid_for_15_minutes_and_a_medium_for_24_hours",
    "facades.omnia_media.KEPT_S": _OMNIA_MEDIA
    + "an_address_is_valid_for_15_minutes_and_a_medium_for_24_hours",
    "facades.omnia_media.MEDIUM_BYTES": _OMNIA_MEDIA + "what_cannot_be_announced_has_its_status",
    "facades.omnia_media.FOLDER_BYTES": _OMNIA_MEDIA + "what_cannot_be_announced_has_its_status",
    "facades.omnia_media.UPLOADS": _OMNIA_MEDIA + "what_cannot_be_announced_has_its_status",
    "facades.fish.BODY_BYTES": _FISH_FACADE + "a_refusal_says_why",
    "facades.fish.BODY_S": _FISH_FACADE + "a_refusal_says_why",
    "facades.fish.STOP_S": _FISH_FACADE + "a_room_that_cannot_be_left_keeps_no_host_from_stopping",
    "facades.fish_messages.NAME_CHARS": _FISH_FACADE + "a_body_is_taken_or_refused_with_400",
    "facades.fish_messages.SHOWN_BYTES": _FISH_TURNS + "input_and_output_are_cut_at_4_kb",
    "facades.fish_messages.PACKET_BYTES": _FISH_TURNS + "a_call_that_does_not_fit_into_a_packet_is_not_sent",
    "facades.fish_tools.CALL_S": _FISH_TURNS + "a_call_that_is_not_answered_ends_after_30_s",
    "facades.fish_tools.ERROR_CHARS": _FISH_TURNS + "a_failure_that_is_told_at_length_is_cut",
    "facades.fish_room.CONNECT_S": _FISH_ROOMS
    + "a_livekit_server_that_is_not_there_or_refuses_the_key_is_503",
    "facades.fish_room.SEND_S": _FISH_ROOMS
    + "messages_that_the_sdk_does_not_take_are_dropped_and_too_many_end_the_session",
    "facades.fish_room.STATE_S": _FISH_ROOMS + "a_state_that_is_not_confirmed_keeps_no_other_back",
    "facades.fish_room.QUEUED": _FISH_ROOMS
    + "messages_that_the_sdk_does_not_take_are_dropped_and_too_many_end_the_session",
    "facades.fish_room.AHEAD_S": _FISH_ROOMS + "sound_that_the_sdk_does_not_take_is_not_taken_from_the_host",
    "facades.fish_room.FAREWELL_S": _FISH_ROOMS
    + "who_comes_late_reads_the_state_and_is_greeted_and_a_host_that_stops_says_so",
    "facades.fish_session.RETURN_S": _FISH_TURNS + "a_user_who_has_gone_may_come_again_within_15_s",
    "facades.fish_session.PACKETS_PER_S": _FISH_FACADE + "there_are_a_hundred_packets_in_a_second",
    "facades.fish_session.EARLY": _FISH_FACADE + "texts_wait_while_the_agent_starts_and_the_newest_stay",
    "facades.fish_session.EARLY_SOUND": _FISH_FACADE
    + "texts_wait_while_the_agent_starts_and_the_newest_stay",
    "facades.fish_words.PAUSE_S": _FISH_TURNS + "words_wait_for_no_sound_that_has_paused",
    "facades.fish_words.HOLD_S": _FISH_TURNS + "an_agent_that_only_writes_is_read_after_a_while",
    # The device: messages and sessions
    "config.json message_bytes": _DEVICE + "websocket.py::test_client_throws_away_what_does_not_fit",
    "links/frames.py": _DEVICE + "websocket.py::test_client_fails_at_a_message_beyond_reason",
    "app.py _MESSAGE_BYTES": _DEVICE + "session.py::test_client_answers_a_result_too_large_as_failed",
    "protocol/opening.py _LEAST_BYTES": _DEVICE + "session.py::test_client_ignores_limits_it_cannot_use",
    "protocol/session.py": _DEVICE
    + "session.py::test_client_ends_when_the_server_refuses_the_same_message_as_too_large_twice",
    "protocol/grammar.py _MAX_DEPTH": _DEVICE + "grammar.py::test_depth",
    "protocol/wire.py _WEIGHT": _DEVICE
    + "wire.py::test_decode_of_a_heavy_message_leaves_out_what_is_not_known",
    "app.py _TRIES": _DEVICE + "memory.py::test_a_message_that_can_never_be_handled_ends_the_session",
    "app.py _ROOMLESS": _DEVICE + "memory.py::test_a_session_that_leaves_no_room_to_connect_ends",
    "app.py _CREDENTIAL_MS": _DEVICE
    + "conversation.py::test_a_fresh_token_is_tried_once_without_being_asked",
    "protocol/session.py _SLOTS": _DEVICE + "app.py::test_device_closes_when_nothing_is_acknowledged",
    "protocol/stream.py _SLOTS_MOST": _DEVICE
    + "conversation.py::test_long_results_that_nobody_acknowledges_fill_the_outbox_before_the_heap",
    "protocol/session.py _SPARE": _DEVICE
    + "session.py::test_client_refuses_text_and_context_before_the_slots_of_calls_are_touched",
    "protocol/stream.py _ACK_MS": _DEVICE + "stream.py::test_incoming_acknowledges_in_time_for_250_ms",
    "protocol/stream.py _ACK_MESSAGES": _DEVICE + "stream.py::test_incoming_acknowledges_after_32_messages",
    "config.json ping_ms": _DEVICE
    + "lifecycle.py::test_open_is_dead_after_two_and_a_half_ping_intervals_of_silence",
    "protocol/lifecycle.py _CAP_MS": _DEVICE
    + "lifecycle.py::test_never_gives_up_and_keeps_time_across_the_wrap",
    "links/ws.py _CONNECT_MS": _DEVICE + "ws.py::test_link_gives_up_connecting",
    "links/ws.py _STALL_MS": _DEVICE + "ws.py::test_link_gives_up_a_peer_that_takes_nothing",
    "links/serial.py _STALL_MS": _DEVICE + "serial.py::test_link_gives_up_a_host_that_reads_nothing",
    "links/serial.py _PROBE_MS": _DEVICE + "serial.py::test_link_asks_whether_a_text_came",
    "links/serial.py _KNOCK_MS": _DEVICE + "serial.py::test_link_asks_every_second_until_the_host_answers",
    "links/serial.py _CLOSE_MS": _DEVICE + "serial.py::test_link_closes",
    "links/ws.py _CLOSE_MS": _DEVICE + "ws.py::test_link_does_not_wait_for_ever_to_close",
    "links/upgrade.py _HEAD_MAX": _DEVICE + "upgrade.py::test_an_answer_that_is_too_long_is_told",
    "app.py _EVENTS": _DEVICE + "app.py::test_a_flood_of_messages_does_not_hold_the_loop",
    "app.py _FULL_MOST": _DEVICE + "memory.py::test_a_heap_that_stays_full_ends_the_device",
    "conversation.py _STUCK_MS": _DEVICE + "app.py::test_device_gives_up_a_turn_that_shows_no_sign_of_life",
    "log.py _FAULTS": _DEVICE + "log.py::test_a_flood_of_faults_is_counted",
    # The device: tools
    "tools/registry.py _QUEUED_CALLS": _DEVICE + "registry.py::test_queue_is_bounded",
    "tools/registry.py _QUEUED_BYTES": _DEVICE + "registry.py::test_queued_arguments_are_bounded",
    "tools/stream.py _CALLS": _DEVICE
    + "tool_stream.py::test_more_calls_than_a_display_has_room_for_are_not_shown",
    "tools/arguments.py _VALUE_DEPTH": _DEVICE + "arguments.py::test_canonical_depth_is_bounded",
    "tools/call.py _OUTPUT_BYTES": _DEVICE
    + "registry.py::test_output_that_is_not_json_or_too_large_says_that_it_ran",
    "tools/registry.py _TEXT": _DEVICE + "arguments.py::test_message_is_bounded",
    "tools/declaration.py _SCHEMA_DEPTH": _DEVICE + "arguments.py::test_schema_depth_is_bounded",
    "tools/declaration.py _TIMEOUT_MAX_MS": _DEVICE
    + "declaration.py::test_wrong_members_are_refused_and_say_what_to_do",
    "tools/declaration.py _CONFIRM_MIN_MS": _DEVICE
    + "declaration.py::test_timeout_leaves_time_for_a_confirmation",
    "tools/confirm.py _WINDOW_MS": _DEVICE + "registry.py::test_unanswered_confirmation_rejects_after_15_s",
    "tools/journal.py _CALLS": _DEVICE + "journal.py::test_file_and_memory_are_bounded",
    "tools/journal.py _KEPT_BYTES": _DEVICE + "journal.py::test_file_and_memory_are_bounded",
    "tools/journal.py _FILE_BYTES": _DEVICE + "journal.py::test_file_and_memory_are_bounded",
    "tools/journal.py _KEPT_ARGUMENTS": _LIMITS + "device_keeps_short_arguments_alone_for_its_report",
    # The device: sound and button
    "config.json buffer_ms": _TURNS + "audio_is_announced_cut_and_paced",
    "audio/make.py _SPARE_MS": _DEVICE + "sound.py::test_the_ring_holds_what_was_announced_and_200_ms",
    "audio/formats.py _LARGEST": _DEVICE + "speaker.py::test_speaker_refuses_formats_it_cannot_play",
    "config.py _PCM16_MS": _DEVICE + "config.py::test_much_pcm16_does_not_fit",
    "audio/speaker.py _ITEMS": _DEVICE + "speaker.py::test_speaker_refuses_more_items_than_it_can_tell_apart",
    "audio/mic.py slots": _DEVICE
    + "mic.py::test_mic_keeps_frames_for_a_link_that_is_busy_and_drops_the_oldest",
    "audio/speaker.py _STALL_MS": _DEVICE + "speaker.py::test_speaker_reopens_an_i2s_that_is_stuck",
    "ui.py _OPEN_MS": _DEVICE + "ui.py::test_tap_to_talk_does_not_last_for_ever",
}
