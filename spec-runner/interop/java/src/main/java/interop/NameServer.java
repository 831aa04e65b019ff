package interop;

import com.mongodb.spi.dns.DnsClient;
import com.mongodb.spi.dns.DnsException;
import com.mongodb.spi.dns.InetAddressResolver;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Hashtable;
import java.util.List;
import javax.naming.NamingException;
import javax.naming.directory.Attribute;
import javax.naming.directory.InitialDirContext;

/** Looks up names at one DNS server, for a driver that is told so. */
record NameServer(String address) implements DnsClient, InetAddressResolver {
    @Override
    public List<String> getResourceRecordData(String name, String type) throws DnsException {
        Hashtable<String, String> environment = new Hashtable<>();
        environment.put("java.naming.factory.initial", "com.sun.jndi.dns.DnsContextFactory");
        environment.put("java.naming.provider.url", "dns://" + address + "/.");
        try {
            Attribute found = new InitialDirContext(environment).getAttributes(name, new String[] {type}).get(type);
            List<String> data = new ArrayList<>();
            if (found != null) {
                for (Object one : Collections.list(found.getAll())) {
                    data.add((String) one);
                }
            }
            return data;
        } catch (NamingException error) {
            throw new DnsException(type + " records of " + name, error);
        }
    }

    @Override
    public List<InetAddress> lookupByName(String host) throws UnknownHostException {
        // No name begins with a digit here.
        if (Character.isDigit(host.charAt(0))) {
            return List.of(InetAddress.getByName(host));
        }
        List<InetAddress> addresses = new ArrayList<>();
        for (String address : getResourceRecordData(host, "A")) {
            addresses.add(InetAddress.getByName(address));
        }
        return addresses;
    }
}
