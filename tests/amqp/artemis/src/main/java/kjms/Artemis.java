package kjms;

import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.artemis.api.core.TransportConfiguration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.remoting.impl.netty.NettyAcceptorFactory;
import org.apache.activemq.artemis.core.security.CheckType;
import org.apache.activemq.artemis.core.security.Role;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.impl.ActiveMQServerImpl;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;
import org.apache.activemq.artemis.spi.core.security.ActiveMQSecurityManager;

/** A broker on 127.0.0.1 that speaks AMQP 1.0 and STOMP, and ends with its standard input: {@code Artemis PORT FOLDER [NAME PASSWORD]}. */
public final class Artemis {
    private Artemis() {}

    /** Who may come in. */
    private record Door(String name, String password) implements ActiveMQSecurityManager {
        @Override
        public boolean validateUser(String user, String secret) {
            return name.equals(user) && password.equals(secret);
        }

        @Override
        public boolean validateUserAndRole(String user, String secret, Set<Role> roles, CheckType kind) {
            return validateUser(user, secret);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String port = arguments[0];
        Path folder = Path.of(arguments[1]);
        boolean isGuarded = arguments.length > 2;
        ConfigurationImpl configuration = new ConfigurationImpl();
        configuration.setJournalDirectory(folder.resolve("journal").toString());
        configuration.setBindingsDirectory(folder.resolve("bindings").toString());
        configuration.setPagingDirectory(folder.resolve("paging").toString());
        configuration.setLargeMessagesDirectory(folder.resolve("large").toString());
        configuration.setJournalType(JournalType.NIO);
        configuration.setJournalFileSize(4 << 20);
        configuration.setJournalBufferTimeout_NIO(200_000); // as "artemis create" chooses for a fast disk
        configuration.setSecurityEnabled(isGuarded);
        configuration.setMessageExpiryScanPeriod(-1);
        configuration.setIDCacheSize(200_000);
        configuration.addAcceptorConfiguration(new TransportConfiguration(
            NettyAcceptorFactory.class.getName(),
            Map.of("host", "127.0.0.1", "port", port, "protocols", "AMQP,STOMP"),
            "all"));
        AddressSettings settings = new AddressSettings();
        settings.setAutoCreateAddresses(true);
        settings.setAutoCreateQueues(true);
        settings.setAutoDeleteAddresses(false);
        settings.setAutoDeleteQueues(false);
        configuration.addAddressSetting("#", settings);
        AddressSettings closed = new AddressSettings();
        closed.setAutoCreateAddresses(false);
        closed.setAutoCreateQueues(false);
        configuration.addAddressSetting("closed.#", closed);
        ActiveMQServerImpl server = isGuarded
            ? new ActiveMQServerImpl(configuration, null, new Door(arguments[2], arguments[3]))
            : new ActiveMQServerImpl(configuration);
        server.start();
        server.waitForActivation(60, TimeUnit.SECONDS);
        System.out.println("ready");
        while (System.in.read() >= 0) {
            // until whoever started it is gone
        }
        server.stop();
        System.exit(0);
    }
}
